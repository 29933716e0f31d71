// SPDX-License-Identifier: Apache-2.0
// A thin C++ skin over dosa.h: exceptions instead of status codes, a workspace that frees itself.
// Header-only; needs nothing but dosa.h and the library.
#ifndef DOSA_DOSA_HPP
#define DOSA_DOSA_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dosa/dosa.h"

namespace dosa {

/// A call that was refused or failed; what() names argument, found and expected.
class Error : public std::runtime_error {
 public:
  Error(dosa_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  [[nodiscard]] dosa_status status() const noexcept { return status_; }

 private:
  dosa_status status_;
};

/// Throws Error unless `status` is DOSA_OK.
inline void check(dosa_status status) {
  if (status == DOSA_OK) return;
  const char* message = dosa_last_error();
  throw Error(status, message[0] != '\0' ? message : dosa_status_text(status));
}

/// Options with their defaults.
inline dosa_options default_options() {
  dosa_options options;
  check(dosa_options_init(&options, sizeof options));
  return options;
}

/// A problem without pointers, strides for contiguous arrays.
inline dosa_problem make_problem(std::int64_t num_queries, std::int64_t num_keys,
                                 std::int32_t num_heads, std::int32_t head_dim, std::int32_t topk) {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = num_queries;
  problem.num_keys = num_keys;
  problem.num_heads = num_heads;
  problem.head_dim = head_dim;
  problem.topk = topk;
  problem.page_size = 1;
  problem.q_stride = static_cast<std::int64_t>(num_heads) * head_dim;
  problem.k_stride = head_dim;
  problem.weights_stride = num_heads;
  return problem;
}

/// The Top-K of a call.
struct TopK {
  std::vector<std::int32_t> indices;  // (Q, K), -1 behind the last
  std::vector<float> scores;          // (Q, K) where asked for, else empty
  std::vector<dosa_row_stats> rows;   // (Q)
  dosa_stats stats{};
};

/// Holds options and a workspace that grows to what the calls need. Not for two threads at once.
class Indexer {
 public:
  explicit Indexer(const dosa_options& options = default_options()) : options_(options) {}

  [[nodiscard]] const dosa_options& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return bytes_; }

  /// The exact Top-K of every row of `problem`; `want_scores` fills TopK::scores.
  /// Throws: Error, std::bad_alloc.
  TopK topk(const dosa_problem& problem, bool want_scores = false) {
    std::size_t needed = 0;
    check(dosa_workspace_bytes(&problem, &options_, &needed));
    if (needed > bytes_) {
      workspace_.reset();
      workspace_ = std::make_unique<std::byte[]>(needed);
      bytes_ = needed;
    }
    const auto rows = static_cast<std::size_t>(problem.num_queries);
    const std::size_t cells = rows * static_cast<std::size_t>(problem.topk);
    TopK result;
    result.indices.resize(cells);
    if (want_scores) result.scores.resize(cells);
    result.rows.resize(rows);
    result.stats.struct_size = sizeof result.stats;
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = result.indices.data();
    output.indices_stride = problem.topk;
    output.scores = want_scores ? result.scores.data() : nullptr;
    output.scores_stride = problem.topk;
    output.rows = result.rows.data();
    output.stats = &result.stats;
    check(dosa_topk(&problem, &options_, &output, workspace_.get(), bytes_));
    return result;
  }

 private:
  dosa_options options_;
  std::unique_ptr<std::byte[]> workspace_;
  std::size_t bytes_ = 0;
};

}  // namespace dosa

#endif  // DOSA_DOSA_HPP
