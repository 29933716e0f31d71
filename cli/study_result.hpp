// SPDX-License-Identifier: Apache-2.0
// What a study found, and its three forms: tables, JSON, CSV.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "study_engine.hpp"
#include "study_row.hpp"

namespace dosa::cli {

/// One input's results.
struct StudyResult {
  StudyInput input;  // its problem points nowhere any more: the data is given back
  int retained = 0;
  std::int64_t row_tokens = 1;
  std::vector<std::int64_t> rows;     // that were replayed
  std::vector<std::int64_t> visible;  // keys that each of them sees
  std::vector<StudyCase> cases;
  std::vector<std::vector<Metrics>> metrics;                     // (cases, rows)
  std::vector<std::pair<std::string, Trajectory>> trajectories;  // means over rows
  double over_retained = 0.0;  // share of all rows with more than r positive heads
  double positive = 0.0;       // mean number of positive heads, replayed rows
  double above_fixed = 0.0, near_zero = 0.0;
  std::int64_t violations = 0;
  std::vector<EngineRun> runs;

  /// Mean over the rows in which the case applies; NaN where there is none.
  [[nodiscard]] double mean(std::size_t at, Metric metric) const;
  /// The same for the case of that name; NaN where there is no such case.
  [[nodiscard]] double mean(const std::string& facet, const std::string& name, Metric metric) const;
};

/// Mean of the finite values of `value` over the results; NaN where there is none.
[[nodiscard]] double mean_over(const std::vector<const StudyResult*>& results,
                               const std::function<double(const StudyResult&)>& value);

/// The results of each group, groups in the order in which they appear.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<const StudyResult*>>> grouped_results(
    const std::vector<StudyResult>& results);

/// "2.65"; empty for NaN.
[[nodiscard]] std::string percent_text(double share);

[[nodiscard]] std::string study_tables(const std::vector<StudyResult>& results);
[[nodiscard]] nlohmann::ordered_json study_json(const std::vector<StudyResult>& results);
[[nodiscard]] std::string study_csv(const std::vector<StudyResult>& results);

/// What is published about GLM-5.2 beside what the glm52 inputs of a study gave; empty where there
/// are none.
[[nodiscard]] std::string published_table(const std::vector<StudyResult>& results);

}  // namespace dosa::cli
