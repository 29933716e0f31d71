// SPDX-License-Identifier: Apache-2.0
//
// Checks shared by the case collection: every mode, every row, ids and scores, no tolerance.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracle/distributions.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"
#include "oracle/properties.hpp"

namespace dosa::oracle {

using Ids = std::vector<std::int32_t>;

inline const std::vector<int>& all_modes() {
  static const std::vector<int> kModes = {DOSA_MODE_AUTO, DOSA_MODE_BASE, DOSA_MODE_FULL,
                                          DOSA_MODE_SCREEN, DOSA_MODE_DOSA};
  return kModes;
}

/// The answer in every mode is `expected`, `repeats` times.
inline void expect_rows(const Problem& problem, const std::vector<Row>& expected, int repeats = 1,
                        const Request& request = {}) {
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (const int mode : all_modes()) {
      dosa_options options = make_options(request);
      options.mode = mode;
      options.threads = 1 + (repeat + mode) % 3;
      ASSERT_EQ(difference(problem, expected, run(problem, request, options)), "")
          << describe(options) << " repeat " << repeat;
    }
  }
}

inline void expect_oracle(const Problem& problem, int repeats = 1, const Request& request = {}) {
  expect_rows(problem, top_k(problem, request), repeats, request);
}

/// DIAL with every row alike: the score of key i is weight * values[i]. 16 coordinates are enough
/// for one, and let the rows be long.
inline void expect_dial(const std::vector<float>& values, std::int64_t num_queries, int topk,
                        int repeats = 1, float weight = 1.0F) {
  const Problem problem = dial(values, num_queries, topk, weight, 1, 16);
  std::vector<float> scores = values;
  for (float& score : scores) score *= weight;
  const std::vector<Row> expected(static_cast<std::size_t>(num_queries),
                                  select(problem, {}, 0, scores));
  expect_rows(problem, expected, repeats);
}

inline void expect_distribution(const Distribution& scores, std::int64_t rows,
                                std::int64_t repeats) {
  SCOPED_TRACE(scores.name);
  expect_dial(scores.values, rows, scores.topk, static_cast<int>(repeats), scores.sign);
}

inline void expect_distributions(const std::vector<Distribution>& cases) {
  for (const Distribution& scores : cases) {
    expect_distribution(scores, scores.rows, scores.repeats);
  }
}

/// Full size where DOSA_TEST_SCALE asks for more than a quick run.
inline std::int64_t full_or(std::int64_t full, std::int64_t quick) {
  return test_scale() > 1 ? full : quick;
}

}  // namespace dosa::oracle
