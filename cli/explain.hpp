// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dosa::cli {

/// Quantiles that are reported, in percent.
constexpr std::array<int, 7> kQuantiles = {0, 1, 10, 50, 90, 99, 100};

/// What the certificate of one row was and did.
struct Explanation {
  std::string trace;
  std::int64_t row = 0;
  std::int64_t start = 0, end = 0;  // the window, clamped
  dosa_problem problem{};           // of this row alone
  dosa_options options{};
  dosa_certificate certificate{};
  dosa_row_stats stats{};

  std::int64_t bounded = 0;          // visible keys with a finite bound and score
  std::int64_t unbounded = 0;        // visible keys that may not be pruned
  std::int64_t under_threshold = 0;  // keys with a bound below the certificate's own threshold
  std::int64_t under_kth = 0;        // below the K-th score: what a perfect threshold would reject
  std::int64_t outside = 0;          // keys that are not among the K best
  std::array<double, kQuantiles.size()> score_quantiles{};
  std::array<double, kQuantiles.size()> slack_quantiles{};  // of bound - score
};

/// The explanation in words, for a reader who has not read the paper.
[[nodiscard]] std::string explanation_text(const Explanation& explanation);

/// The word for a head's role in the certificate.
[[nodiscard]] const char* role_name(int role);

}  // namespace dosa::cli
