// SPDX-License-Identifier: Apache-2.0
// A request's keys behind its block table.
#ifndef DOSA_ENGINE_DECODE_PAGES_HPP
#define DOSA_ENGINE_DECODE_PAGES_HPP

#include <bit>
#include <cstddef>
#include <cstdint>

#include "dosa/dosa_decode.h"
#include "plan/operands.hpp"

namespace dosa::engine {

/// Bytes of a page that hold anything.
inline std::int64_t page_bytes(const dosa_page_cache& cache) {
  return static_cast<std::int64_t>(cache.page_size) *
         (cache.head_dim + static_cast<std::int64_t>(sizeof(float)));
}

/// Where the tokens of one request lie. Positions are checked by the caller.
class PagedKeys {
 public:
  PagedKeys(const dosa_page_cache& cache, const std::int32_t* blocks)
      : cache_(cache),
        blocks_(blocks),
        shift_(std::countr_zero(static_cast<std::uint32_t>(cache.page_size))) {}

  /// The end of the page of token `position`, as the number of a token.
  [[nodiscard]] std::int64_t page_end(std::int64_t position) const {
    return position - place_of(position) + cache_.page_size;
  }
  /// Keys and scales in place, valid for the tokens [position, page_end(position)).
  [[nodiscard]] plan::KeySource in_place(std::int64_t position) const {
    const std::uint8_t* page = page_of(position);
    const std::int64_t dims = cache_.head_dim;
    return {page + place_of(position) * dims, dims,
            reinterpret_cast<const float*>(page + cache_.page_size * dims) + place_of(position)};
  }
  /// Copies tokens [begin, begin + count). Shapes: codes (count, stride), scales (count).
  void copy(std::int64_t begin, std::int64_t count, std::uint8_t* codes, std::int64_t stride,
            float* scales) const;
  /// Copies the tokens listed. Shapes: positions (count), codes (count, D), scales (count).
  void copy_listed(const std::int32_t* positions, int count, std::uint8_t* codes,
                   float* scales) const;

 private:
  [[nodiscard]] const std::uint8_t* page_of(std::int64_t position) const {
    return cache_.pages + blocks_[position >> shift_] * cache_.page_stride;
  }
  [[nodiscard]] std::int64_t place_of(std::int64_t position) const {
    return position & (cache_.page_size - 1);
  }
  void prefetch(std::int64_t position) const;

  const dosa_page_cache& cache_;
  const std::int32_t* blocks_;
  int shift_;  // page sizes are powers of two
};

/// Requests of a gather: tokens to contiguous keys. All arguments are valid.
void gather(const dosa_paged_gather_problem& problem);
/// New keys, quantised, to their slots. All arguments are valid.
void insert(const dosa_paged_insert_problem& problem);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_PAGES_HPP
