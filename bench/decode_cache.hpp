// SPDX-License-Identifier: Apache-2.0
// The keys of a workload in pages, as a serving engine would have them after a prefill.
#ifndef DOSA_BENCH_DECODE_CACHE_HPP
#define DOSA_BENCH_DECODE_CACHE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "dosa/dosa.hpp"
#include "dosa/dosa_decode.h"

namespace dosa::bench {

/// `batch` copies of the keys, all their pages shuffled.
class DecodeCache {
 public:
  DecodeCache(const dosa_problem& problem, std::int64_t batch, int page_size)
      : batch_(batch), blocks_((problem.num_keys + page_size - 1) / page_size) {
    cache_.struct_size = sizeof cache_;
    cache_.page_size = page_size;
    cache_.head_dim = problem.head_dim;
    cache_.page_stride = static_cast<std::int64_t>(page_size) * (problem.head_dim + 4);
    cache_.num_pages = batch * blocks_;
    pages_.resize(static_cast<std::size_t>(cache_.num_pages * cache_.page_stride));
    cache_.pages = pages_.data();
    table_.resize(static_cast<std::size_t>(cache_.num_pages));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937_64(11));
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < problem.num_keys; ++i) put(problem, b, i);
    }
  }
  DecodeCache(const DecodeCache&) = delete;
  DecodeCache& operator=(const DecodeCache&) = delete;

  /// Row `step` of the workload, asked by every request of the batch over `length` tokens.
  dosa_paged_problem step(const dosa_problem& rows, std::int64_t step, std::int32_t length) {
    const auto width = static_cast<std::size_t>(rows.num_heads) * rows.head_dim;
    q_.clear();
    weights_.clear();
    for (std::int64_t b = 0; b < batch_; ++b) {
      const std::uint8_t* q = rows.q + step * rows.q_stride;
      const float* weights = rows.weights + step * rows.weights_stride;
      q_.insert(q_.end(), q, q + width);
      weights_.insert(weights_.end(), weights, weights + rows.num_heads);
    }
    lengths_.assign(static_cast<std::size_t>(batch_), length);
    dosa_paged_problem problem = make_paged_problem(cache_, batch_, 1, rows.num_heads, 1);
    problem.max_context = blocks_ * cache_.page_size;
    problem.q = q_.data();
    problem.weights = weights_.data();
    problem.context_lens = lengths_.data();
    problem.block_table = table_.data();
    problem.block_table_stride = problem.block_table_blocks = blocks_;
    return problem;
  }

 private:
  void put(const dosa_problem& problem, std::int64_t b, std::int64_t i) {
    const std::int64_t block = table_[static_cast<std::size_t>(b * blocks_ + i / cache_.page_size)];
    std::uint8_t* page = pages_.data() + block * cache_.page_stride;
    const std::int64_t place = i % cache_.page_size;
    std::memcpy(page + place * problem.head_dim, problem.k + i * problem.k_stride,
                static_cast<std::size_t>(problem.head_dim));
    std::memcpy(page + cache_.page_size * problem.head_dim + place * 4, problem.k_scale + i, 4);
  }

  std::int64_t batch_, blocks_;
  dosa_page_cache cache_{};
  std::vector<std::uint8_t> pages_, q_;
  std::vector<std::int32_t> table_, lengths_;
  std::vector<float> weights_;
};

}  // namespace dosa::bench

#endif  // DOSA_BENCH_DECODE_CACHE_HPP
