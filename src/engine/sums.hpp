// SPDX-License-Identifier: Apache-2.0
// Statistics of a group of rows, added in row order so that they do not depend on threads.
#ifndef DOSA_ENGINE_SUMS_HPP
#define DOSA_ENGINE_SUMS_HPP

#include <cstdint>

#include "dosa/dosa.h"

namespace dosa::engine {

struct Sums {
  std::int64_t rows = 0, visible = 0, screened = 0, fully_scored = 0, records = 0, rounds = 0;
  std::int64_t fallback_rows = 0, short_rows = 0, screened_rows = 0, slack_count = 0;
  double slack = 0.0;
  double deficit = 0.0;  // over screened pairs

  void add(const dosa_row_stats& row, bool is_short, double row_slack,
           std::int64_t row_slack_count) {
    ++rows;
    visible += row.visible;
    screened += row.screened;
    fully_scored += row.fully_scored;
    records += row.records;
    rounds += row.rounds;
    fallback_rows += row.fallback;
    short_rows += is_short ? 1 : 0;
    screened_rows += row.screened > 0 ? 1 : 0;
    slack += row_slack;
    slack_count += row_slack_count;
    deficit += static_cast<double>(row.mean_deficit) * static_cast<double>(row.screened);
  }

  void add(const Sums& other) {
    rows += other.rows;
    visible += other.visible;
    screened += other.screened;
    fully_scored += other.fully_scored;
    records += other.records;
    rounds += other.rounds;
    fallback_rows += other.fallback_rows;
    short_rows += other.short_rows;
    screened_rows += other.screened_rows;
    slack += other.slack;
    slack_count += other.slack_count;
    deficit += other.deficit;
  }

  void write(dosa_stats& out) const {
    out.rows = rows;
    out.visible = visible;
    out.screened = screened;
    out.fully_scored = fully_scored;
    out.records = records;
    out.rounds = rounds;
    out.fallback_rows = fallback_rows;
    out.short_rows = short_rows;
    out.screened_rows = screened_rows;
    out.mean_slack = slack_count > 0 ? slack / static_cast<double>(slack_count) : 0.0;
    out.mean_deficit = screened > 0 ? deficit / static_cast<double>(screened) : 0.0;
  }
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_SUMS_HPP
