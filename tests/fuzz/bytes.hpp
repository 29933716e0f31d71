// SPDX-License-Identifier: Apache-2.0
//
// Decisions drawn from a fuzzer's input: the same bytes decide the same, and where they have run
// out everything is the first choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>

#include "dosa/dosa.h"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::fuzz {

/// Ends the run with the input kept, as a failed check does.
inline void require(bool condition) {
  if (!condition) std::abort();
}

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  [[nodiscard]] bool empty() const { return at_ == size_; }

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }

  /// In [low, high], low where the bytes have run out; high - low < 2^32.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto range = static_cast<std::uint64_t>(high - low) + 1;
    std::uint64_t value = 0;
    for (std::uint64_t reach = 1; reach < range; reach <<= 8U) value = value << 8U | byte();
    return low + static_cast<std::int64_t>(value % range);
  }

  /// Once in n times; false where the bytes have run out.
  bool once_in(int n) { return between(0, n - 1) == n - 1; }

  template <typename Value>
  Value pick(std::initializer_list<Value> values) {
    const auto last = static_cast<std::int64_t>(values.size()) - 1;
    return values.begin()[between(0, last)];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// Largest extents of a drawn problem.
struct Extents {
  int queries, heads, sixteenths, keys, topk;
};

inline oracle::Recipe draw_recipe(Bytes& bytes, const Extents& most) {
  const auto kind = [&bytes](auto count) {
    return static_cast<decltype(count)>(bytes.between(0, static_cast<int>(count) - 1));
  };
  oracle::Recipe recipe;
  recipe.kind = kind(oracle::Kind::kCount);
  recipe.weights = kind(oracle::Weights::kCount);
  recipe.scales = kind(oracle::Scales::kCount);
  recipe.windows = kind(oracle::Windows::kCount);
  recipe.num_queries = static_cast<int>(bytes.between(0, most.queries));
  recipe.num_heads = static_cast<int>(bytes.between(1, most.heads));
  recipe.sixteenths = static_cast<int>(bytes.between(1, most.sixteenths));
  recipe.num_keys = static_cast<int>(bytes.between(0, most.keys));
  recipe.topk = static_cast<int>(bytes.between(1, most.topk));
  recipe.nan_codes = bytes.once_in(8) ? 2 : 0;
  recipe.seed = static_cast<std::uint64_t>(bytes.between(0, 0xffff));
  return recipe;
}

/// Options that the library accepts for a problem of these heads and coordinates.
inline dosa_options draw_options(Bytes& bytes, int num_heads, int head_dim,
                                 const oracle::Request& request) {
  const auto draw = [&bytes](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(bytes.between(low, high));
  };
  dosa_options options = oracle::make_options(request);
  options.mode = draw(DOSA_MODE_AUTO, DOSA_MODE_DOSA);
  options.threshold = draw(DOSA_THRESHOLD_RISING, DOSA_THRESHOLD_FIXED);
  options.heads = bytes.once_in(2) ? draw(0, num_heads) : 0;
  options.threads = bytes.once_in(4) ? draw(2, 4) : 1;  // waking threads takes its time
  options.retain = draw(DOSA_RETAIN_UNCERTAINTY, DOSA_RETAIN_STRENGTH);
  options.projection = 1 - draw(0, 1);
  options.allowance = draw(DOSA_ALLOWANCE_BEST, DOSA_ALLOWANCE_GROUPED);
  options.allowance_groups = 2 << draw(0, 2);
  while (head_dim % (8 * options.allowance_groups) != 0) options.allowance_groups /= 2;
  options.aggregate = draw(DOSA_AGGREGATE_SUPPORT, DOSA_AGGREGATE_NONE);
  options.statistics = draw(DOSA_STATISTICS_HARD, DOSA_STATISTICS_SEEDS);
  return options;
}

inline oracle::Request draw_request(Bytes& bytes, const oracle::Problem& problem) {
  oracle::Request request;
  request.form = static_cast<oracle::IndexForm>(bytes.between(0, 3));
  request.order = static_cast<oracle::Order>(bytes.between(0, 1));
  request.forced_first = bytes.once_in(3) ? bytes.pick({1, 3, 70, 0x7fffffff}) : 0;
  request.forced_last = bytes.once_in(3) ? bytes.pick({1, 2, 65, 0x7fffffff}) : 0;
  request.page_size = static_cast<int>(bytes.between(1, 70));
  request.one_table = bytes.once_in(2);
  request.page_table_pages = problem.num_keys / request.page_size + 1;
  oracle::Random random(static_cast<std::uint64_t>(bytes.byte()));
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    request.index_offset.push_back(static_cast<std::int32_t>(random.between(-1000000, 1000000)));
  }
  const std::int64_t tables = request.one_table ? 1 : problem.num_queries;
  for (std::int64_t i = 0; i < tables * request.page_table_pages; ++i) {
    request.page_table.push_back(static_cast<std::int32_t>(random.below(1 << 20)));
  }
  return request;
}

}  // namespace dosa::fuzz
