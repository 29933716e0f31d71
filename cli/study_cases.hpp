// SPDX-License-Identifier: Apache-2.0
// The certificates that a study compares, and under which heading.
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plan/certificate.hpp"

namespace dosa::cli {

/// How a row is planned: the certificate's options, the keys on which activity is measured, and
/// whose winners the row starts from.
struct StudyPlan {
  plan::CertificateOptions certificate;
  dosa_statistics statistics = DOSA_STATISTICS_HARD;
  int age = 0;  // rows between the row and the one whose winners it starts from; 0: the first row
};

[[nodiscard]] bool same_plan(const StudyPlan& a, const StudyPlan& b);

/// One line of a table.
struct StudyCase {
  std::string facet;  // "components", "retained", ...
  std::string name;
  StudyPlan plan;
};

/// The paper's rules with r retained heads: activity on the seeds, one aggregate, triangle
/// allowance.
[[nodiscard]] StudyPlan paper_plan(int retained);
/// The engine's defaults with r retained heads.
[[nodiscard]] StudyPlan default_plan(int retained);

/// The four variants of the paper's component study, and the full certificate before them.
[[nodiscard]] std::vector<StudyCase> component_cases(int retained);

/// What the cases of an input depend on.
struct StudyScope {
  int heads = 0;                // H
  int retained = 0;             // r, where it is not what varies
  std::vector<int> widths;      // r to try; those above H are left out
  std::vector<int> ages;        // rows between a row and the one whose winners it starts from
  std::int64_t row_tokens = 1;  // tokens from one row to the next
};

/// Every case: components, retained heads, statistics, aggregates, allowances, seeds.
[[nodiscard]] std::vector<StudyCase> study_cases(const StudyScope& scope);

/// The facets that study_cases() has, in its order.
[[nodiscard]] const std::vector<std::string>& study_facets();

/// What the study of the paper has and this engine has not, one reason each.
struct Unavailable {
  std::string what, why;
};
[[nodiscard]] const std::vector<Unavailable>& unavailable_cases();

}  // namespace dosa::cli
