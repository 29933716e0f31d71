// SPDX-License-Identifier: Apache-2.0
//
// Calls of the library as a hostile caller makes them: padded rows full of NaN, outputs poisoned
// before and guarded on both sides, a workspace of exactly the size asked for that still holds what
// the call before left there, and inputs hashed before and after.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <vector>

#include "dosa/dosa.h"
#include "oracle.hpp"

namespace dosa::oracle {

/// Elements between the rows of each array beyond the least, and how far the workspace is off a
/// cache line.
struct Layout {
  int q = 0;
  int k = 0;
  int weights = 0;
  int indices = 0;
  int scores = 0;
  int workspace = 0;
};

/// A dosa_problem and the memory it points to.
class Arguments {
 public:
  Arguments(const Problem& problem, const Request& request, const Layout& layout = {});
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  [[nodiscard]] const dosa_problem& get() const { return problem_; }
  [[nodiscard]] dosa_problem& get() { return problem_; }
  [[nodiscard]] std::uint64_t hash() const;

 private:
  std::vector<std::uint8_t> q_;
  std::vector<std::uint8_t> k_;
  std::vector<float> k_scale_;
  std::vector<float> weights_;
  std::vector<std::int32_t> start_;
  std::vector<std::int32_t> end_;
  std::vector<std::int32_t> offset_;
  std::vector<std::int32_t> table_;
  dosa_problem problem_{};
};

/// Default options, in the form and order of a request.
[[nodiscard]] dosa_options make_options(const Request& request = {});
std::ostream& operator<<(std::ostream& out, const dosa_options& options);
[[nodiscard]] std::string describe(const dosa_options& options);

struct Outcome {
  dosa_status status = DOSA_OK;
  std::string error;                 // dosa_last_error()
  std::vector<std::int32_t> ids;     // (Q, K)
  std::vector<float> scores;         // (Q, K)
  std::vector<dosa_row_stats> rows;  // (Q)
  dosa_stats stats{};
  std::string damage;  // what was written where nothing may be, or not written where it must
};

/// One call of dosa_topk, with a call before it that has one byte too few of workspace.
[[nodiscard]] Outcome run(const Problem& problem, const Request& request,
                          const dosa_options& options, const Layout& layout = {});

/// dosa_scores of all rows, (Q, N); status, error and damage as above, scores in `scores`.
[[nodiscard]] Outcome run_scores(const Problem& problem, const dosa_options& options);

struct Bounds {
  dosa_status status = DOSA_OK;
  std::string error;
  dosa_certificate certificate{};
  std::vector<float> bounds;  // (N)
};

/// dosa_bounds of one row.
[[nodiscard]] Bounds run_bounds(const Problem& problem, const dosa_options& options,
                                std::int64_t row);

/// The first difference between an answer and the oracle's, in words; empty where there is none.
[[nodiscard]] std::string difference(const Problem& problem, const std::vector<Row>& expected,
                                     const Outcome& outcome);

/// Ids of one row.
[[nodiscard]] std::vector<std::int32_t> ids_of(const Outcome& outcome, std::int64_t row, int topk);

/// Same bits, or both NaN.
[[nodiscard]] bool same(float a, float b);

}  // namespace dosa::oracle
