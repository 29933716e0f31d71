// SPDX-License-Identifier: Apache-2.0
//
// Decode steps made from plain problems: request b is problem b, its rows are the queries and their
// `end` the lengths. The keys are strewn over shuffled pages; whatever no length reaches is poison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dosa/dosa_decode.h"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {

/// How the pages lie.
struct Paging {
  int page_size = 64;
  int extra_bytes = 0;    // between pages, a multiple of 4
  int spare_pages = 3;    // that belong to no request
  int spare_entries = 2;  // behind the last block of the longest request
  std::uint64_t seed = 1;
};

/// Keys in pages, and the tables of the requests.
class Pages {
 public:
  Pages(const std::vector<Problem>& requests, const Paging& paging) : paging_(paging) {
    Random random(paging.seed);
    const int dims = requests.empty() ? 16 : requests[0].head_dim;
    std::int64_t pages = paging.spare_pages;
    for (const Problem& request : requests) {
      const std::int64_t used = blocks_of(request);
      pages += used;
      blocks_ = std::max(blocks_, used + paging.spare_entries);
    }
    cache_.struct_size = sizeof cache_;
    cache_.page_size = paging.page_size;
    cache_.head_dim = dims;
    cache_.num_pages = pages;
    cache_.page_stride = paging.page_size * (dims + 4) + paging.extra_bytes;
    bytes_.assign(static_cast<std::size_t>(pages * cache_.page_stride), 0xff);  // NaN everywhere
    cache_.pages = bytes_.data();
    std::vector<std::int32_t> free(static_cast<std::size_t>(pages));
    for (std::size_t p = 0; p < free.size(); ++p) free[p] = static_cast<std::int32_t>(p);
    random.shuffle(free);
    table_.assign(requests.size() * static_cast<std::size_t>(blocks_), -7);
    std::size_t next = 0;
    for (std::size_t b = 0; b < requests.size(); ++b) {
      std::int32_t* table = table_.data() + b * static_cast<std::size_t>(blocks_);
      for (std::int64_t n = 0; n < blocks_of(requests[b]); ++n) table[n] = free[next++];
      for (std::int64_t i = 0; i < requests[b].num_keys; ++i) put(requests[b], table, i);
    }
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] dosa_page_cache& cache() { return cache_; }
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::vector<std::int32_t>& table() { return table_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::int32_t> table_of(std::size_t b) const {
    const auto first = table_.begin() + static_cast<std::ptrdiff_t>(b) * blocks_;
    return {first, first + blocks_};
  }
  /// The same pages in another physical order, with the tables to match.
  void move(std::uint64_t seed) {
    Random random(seed);
    std::vector<std::int32_t> to(static_cast<std::size_t>(cache_.num_pages));
    for (std::size_t p = 0; p < to.size(); ++p) to[p] = static_cast<std::int32_t>(p);
    random.shuffle(to);
    const std::vector<std::uint8_t> old = bytes_;
    for (std::size_t p = 0; p < to.size(); ++p) {
      std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(p) * cache_.page_stride,
                  cache_.page_stride, bytes_.begin() + to[p] * cache_.page_stride);
    }
    for (auto& page : table_) {
      if (page >= 0 && page < cache_.num_pages) page = to[static_cast<std::size_t>(page)];
    }
  }

 private:
  [[nodiscard]] std::int64_t blocks_of(const Problem& request) const {
    return (request.num_keys + paging_.page_size - 1) / paging_.page_size;
  }
  void put(const Problem& request, const std::int32_t* table, std::int64_t i) {
    const std::int64_t place = i % paging_.page_size;
    std::uint8_t* page = bytes_.data() + table[i / paging_.page_size] * cache_.page_stride;
    const int dims = cache_.head_dim;
    std::copy_n(request.k.begin() + i * dims, dims, page + place * dims);
    std::memcpy(page + paging_.page_size * dims + 4 * place,
                &request.k_scale[static_cast<std::size_t>(i)], 4);
  }

  Paging paging_;
  dosa_page_cache cache_{};
  std::int64_t blocks_ = 0;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> table_;
};

/// A dosa_paged_problem and the memory it points to. All requests have the same shape but for N.
class Step {
 public:
  /// What lies in the outputs before a call.
  static constexpr std::int32_t kNoId = 0x7fffffff;
  static constexpr float kNoScore = 12345.0F;

  Step(const std::vector<Problem>& requests, const Paging& paging, int padding = 0)
      : pages(requests, paging) {
    const int heads = requests.empty() ? 1 : requests[0].num_heads;
    const int dims = requests.empty() ? 16 : requests[0].head_dim;
    const auto width = static_cast<std::size_t>(heads * dims);
    for (const Problem& request : requests) {
      for (std::int64_t t = 0; t < request.num_queries; ++t) {
        append(q_, request.q, t, static_cast<std::int64_t>(width), padding, std::uint8_t{0x7f});
        append(weights_, request.weights, t, heads, padding,
               std::numeric_limits<float>::quiet_NaN());
        lengths.push_back(request.end.empty() ? static_cast<std::int32_t>(request.num_keys)
                                              : request.end[static_cast<std::size_t>(t)]);
      }
      problem.max_context = std::max(problem.max_context, request.num_keys);
      problem.next_n = static_cast<std::int32_t>(request.num_queries);
      problem.topk = request.topk;
    }
    problem.struct_size = sizeof problem;
    problem.cache = &pages.cache();
    problem.batch = static_cast<std::int64_t>(requests.size());
    if (requests.empty()) problem.next_n = problem.topk = 1;
    problem.num_heads = heads;
    problem.q_stride = static_cast<std::int64_t>(width) + padding;
    problem.weights_stride = heads + padding;
    problem.context_lens_stride = problem.next_n;
    problem.block_table_stride = problem.block_table_blocks = pages.blocks();
    point();
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Pointers to what may have been reallocated.
  void point() {
    problem.q = q_.data();
    problem.weights = weights_.data();
    problem.context_lens = lengths.data();
    problem.block_table = pages.table().data();
    problem.index_offset = offsets.empty() ? nullptr : offsets.data();
    problem.witnesses = witnesses.empty() ? nullptr : witnesses.data();
    if (witnesses.empty()) return;
    std::size_t bytes = 0;
    require(dosa_witness_bytes(problem.topk, &bytes));
    problem.witness_stride = static_cast<std::int64_t>(bytes);
    problem.witness_count = static_cast<std::int32_t>(4 * witnesses.size() / bytes);
  }

  /// Empty states, one for each request.
  void give_witnesses(std::int64_t count) {
    std::size_t bytes = 0;
    require(dosa_witness_bytes(problem.topk, &bytes));
    witnesses.assign(static_cast<std::size_t>(count) * bytes / 4, 0);
    point();
  }

  Outcome run(const dosa_options& options, bool want_scores = true) {
    Outcome outcome;
    const auto rows = static_cast<std::size_t>(problem.batch * problem.next_n);
    const auto topk = static_cast<std::size_t>(problem.topk);
    const std::vector<std::uint8_t> before = pages.bytes();
    std::size_t bytes = 0;
    outcome.status = dosa_paged_workspace_bytes(&problem, &options, &bytes);
    outcome.error = dosa_last_error();
    if (outcome.status != DOSA_OK) return outcome;
    std::vector<std::int32_t> ids(rows * (topk + 1), kNoId);
    std::vector<float> scores(rows * (topk + 2), kNoScore);
    outcome.rows.resize(rows);
    outcome.stats.struct_size = sizeof outcome.stats;
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids.data();
    output.indices_stride = problem.topk + 1;
    output.scores = want_scores ? scores.data() : nullptr;
    output.scores_stride = problem.topk + 2;
    output.rows = outcome.rows.data();
    output.stats = &outcome.stats;
    std::vector<std::uint8_t> workspace(bytes + 1, 0xcd);
    if (dosa_paged_topk(&problem, &options, &output, workspace.data(), bytes - 1) == DOSA_OK) {
      outcome.damage += "one byte less was accepted; ";
    }
    outcome.status =
        dosa_paged_topk(&problem, &options, &output, workspace.data() + bytes % 2, bytes);
    outcome.error = dosa_last_error();
    if (before != pages.bytes()) outcome.damage += "the cache was changed; ";
    for (std::size_t r = 0; r < rows; ++r) {
      if (ids[r * (topk + 1) + topk] != kNoId) outcome.damage += "written behind a row; ";
      for (std::size_t j = 0; j < topk; ++j) {
        outcome.ids.push_back(ids[r * (topk + 1) + j]);
        outcome.scores.push_back(scores[r * (topk + 2) + j]);
      }
    }
    return outcome;
  }

  Pages pages;
  dosa_paged_problem problem{};
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> offsets;
  std::vector<std::uint32_t> witnesses;

 private:
  template <typename T>
  static void append(std::vector<T>& to, const std::vector<T>& from, std::int64_t row,
                     std::int64_t width, int padding, T filler) {
    to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
    to.insert(to.end(), static_cast<std::size_t>(padding), filler);
  }
  static void require(dosa_status status) {
    if (status != DOSA_OK) throw std::runtime_error(dosa_last_error());
  }

  std::vector<std::uint8_t> q_;
  std::vector<float> weights_;
};

/// The answer of the contract, request after request.
inline std::vector<Row> expected_rows(const std::vector<Problem>& requests,
                                      const std::vector<Request>& forms) {
  std::vector<Row> rows;
  for (std::size_t b = 0; b < requests.size(); ++b) {
    for (Row& row : top_k(requests[b], forms[b])) rows.push_back(std::move(row));
  }
  return rows;
}

/// ids and scores as one string of bytes.
inline std::string bytes_of(const Outcome& outcome) {
  std::string bytes(reinterpret_cast<const char*>(outcome.ids.data()),
                    outcome.ids.size() * sizeof(std::int32_t));
  bytes.append(reinterpret_cast<const char*>(outcome.scores.data()),
               outcome.scores.size() * sizeof(float));
  return bytes;
}

}  // namespace dosa::oracle
