// SPDX-License-Identifier: Apache-2.0
// A thin C++ skin over dosa.h and dosa_decode.h: exceptions instead of status codes, a workspace
// that frees itself. Header-only; needs nothing but these and the library.
#ifndef DOSA_DOSA_HPP
#define DOSA_DOSA_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dosa/dosa.h"
#include "dosa/dosa_decode.h"

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

/// Contiguous pages, as serving engines lay them out. Shapes: pages (num_pages, page_size * (D +
/// 4))
inline dosa_page_cache make_page_cache(std::uint8_t* pages, std::int64_t num_pages,
                                       std::int32_t page_size, std::int32_t head_dim) {
  dosa_page_cache cache{};
  cache.struct_size = sizeof cache;
  cache.pages = pages;
  cache.page_stride = static_cast<std::int64_t>(page_size) * (head_dim + 4);
  cache.num_pages = num_pages;
  cache.page_size = page_size;
  cache.head_dim = head_dim;
  return cache;
}

/// A decode step without pointers, strides for contiguous arrays; block_table_blocks and
/// max_context are still to be set. `cache` has to outlive the calls.
inline dosa_paged_problem make_paged_problem(const dosa_page_cache& cache, std::int64_t batch,
                                             std::int32_t next_n, std::int32_t num_heads,
                                             std::int32_t topk) {
  dosa_paged_problem problem{};
  problem.struct_size = sizeof problem;
  problem.cache = &cache;
  problem.batch = batch;
  problem.next_n = next_n;
  problem.num_heads = num_heads;
  problem.topk = topk;
  problem.q_stride = static_cast<std::int64_t>(num_heads) * cache.head_dim;
  problem.weights_stride = num_heads;
  problem.context_lens_stride = next_n;
  return problem;
}

/// The temporal witnesses of `count` sequences, empty at first.
class Witnesses {
 public:
  Witnesses(std::int32_t topk, std::int32_t count) : topk_(topk), count_(count) {
    check(dosa_witness_bytes(topk, &stride_));
    words_.resize(stride_ / sizeof(std::uint32_t) * static_cast<std::size_t>(count));
  }

  /// Lets a step use and rewrite the states; request b has state b unless witness_index is set.
  void attach(dosa_paged_problem& problem) {
    problem.witnesses = words_.data();
    problem.witness_stride = static_cast<std::int64_t>(stride_);
    problem.witness_count = count_;
  }
  /// Winners that are known otherwise, such as those of the last row of a prefill.
  void set(std::int32_t state, const std::int32_t* ids, std::int64_t ids_count) {
    check(dosa_witness_set(at(state), topk_, ids, ids_count));
  }
  void clear(std::int32_t state) { set(state, nullptr, 0); }

 private:
  std::uint32_t* at(std::int32_t state) {
    return words_.data() + stride_ / sizeof(std::uint32_t) * static_cast<std::size_t>(state);
  }

  std::int32_t topk_, count_;
  std::size_t stride_ = 0;
  std::vector<std::uint32_t> words_;
};

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
    return answer(needed, problem.num_queries, problem.topk, want_scores,
                  [&](const dosa_output& output) {
                    return dosa_topk(&problem, &options_, &output, workspace_.get(), bytes_);
                  });
  }

  /// The exact Top-K of every query of a decode step, Q = B * next_n rows.
  /// Throws: Error, std::bad_alloc.
  TopK topk(const dosa_paged_problem& problem, bool want_scores = false) {
    std::size_t needed = 0;
    check(dosa_paged_workspace_bytes(&problem, &options_, &needed));
    return answer(needed, problem.batch * problem.next_n, problem.topk, want_scores,
                  [&](const dosa_output& output) {
                    return dosa_paged_topk(&problem, &options_, &output, workspace_.get(), bytes_);
                  });
  }

 private:
  template <typename Call>
  TopK answer(std::size_t needed, std::int64_t num_rows, std::int32_t topk, bool want_scores,
              const Call& call) {
    if (needed > bytes_) {
      workspace_.reset();
      workspace_ = std::make_unique<std::byte[]>(needed);
      bytes_ = needed;
    }
    const auto rows = static_cast<std::size_t>(num_rows);
    const std::size_t cells = rows * static_cast<std::size_t>(topk);
    TopK result;
    result.indices.resize(cells);
    if (want_scores) result.scores.resize(cells);
    result.rows.resize(rows);
    result.stats.struct_size = sizeof result.stats;
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = result.indices.data();
    output.indices_stride = topk;
    output.scores = want_scores ? result.scores.data() : nullptr;
    output.scores_stride = topk;
    output.rows = result.rows.data();
    output.stats = &result.stats;
    check(call(output));
    return result;
  }

  dosa_options options_;
  std::unique_ptr<std::byte[]> workspace_;
  std::size_t bytes_ = 0;
};

}  // namespace dosa

#endif  // DOSA_DOSA_HPP
