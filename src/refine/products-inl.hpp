// SPDX-License-Identifier: Apache-2.0
// Integer products of a few keys with all heads of a query. Included once per instruction set.
#if defined(DOSA_REFINE_PRODUCTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DOSA_REFINE_PRODUCTS_INL_HPP
#undef DOSA_REFINE_PRODUCTS_INL_HPP
#else
#define DOSA_REFINE_PRODUCTS_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "numeric/simd_dot-inl.hpp"
#include "plan/operands.hpp"

#if DOSA_SIMD
HWY_BEFORE_NAMESPACE();
namespace dosa::refine {
namespace HWY_NAMESPACE {
using namespace ::dosa::HWY_NAMESPACE;

// Keys scored together: 2 * kBatch accumulators, the packed query read once for all of them.
inline constexpr int kBatch = kLanes == 16 ? 8 : 4;
inline constexpr int kMaxPadded = 128;
// From this many low pairs per key on, all pairs are multiplied in batches instead of one by one.
inline constexpr int kDenseLow = 16;

/// Pairs of coordinates of some keys.
struct Batch {
  const std::int32_t* rows[kBatch];  // (D / 2) pairs
  int key[kBatch];                   // position in the tile
  int count = 0;
};

/// Pairs of a query, lanes = heads: all D / 2 of them, or those listed in `column`.
struct Lanes {
  const std::int32_t* pairs;  // (count, padded_heads)
  const std::uint16_t* column;
  int count, padded_heads;
};

/// Products of kKeys keys with kVectors vectors of heads from lane `head`. Few keys leave
/// accumulators free: then several partial sums hide the latency of the products.
template <int kKeys, int kVectors, bool kListed>
HWY_INLINE void dots_of_heads(const Lanes& query, const Batch& batch, int head,
                              std::int32_t* HWY_RESTRICT dots) {
  constexpr int kParts = kListed ? 1 : kBatch / kKeys;
  const DI di;
  const std::ptrdiff_t lanes = query.padded_heads;
  VI acc[kParts][kKeys][kVectors];
  for (int p = 0; p < kParts; ++p) {
    for (int k = 0; k < kKeys; ++k) {
      for (int v = 0; v < kVectors; ++v) acc[p][k][v] = hn::Zero(di);
    }
  }
  const std::int32_t* HWY_RESTRICT pairs = query.pairs + head;
  for (int j = 0; j < query.count; j += kParts) {  // D / 2 is a multiple of 8
#pragma GCC unroll 8
    for (int p = 0; p < kParts; ++p) {
      VI q[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        q[v] = hn::Load(di, pairs + (j + p) * lanes + v * static_cast<int>(kLanes));
      }
      const int at = kListed ? query.column[j] : j + p;
#pragma GCC unroll 8
      for (int k = 0; k < kKeys; ++k) {
        const VI pair = hn::Set(di, batch.rows[k][at]);
        for (int v = 0; v < kVectors; ++v) acc[p][k][v] = dot_pairs(acc[p][k][v], pair, q[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      VI sum = acc[0][k][v];
      for (int p = 1; p < kParts; ++p) sum = hn::Add(sum, acc[p][k][v]);
      hn::Store(sum, di, dots + k * kMaxPadded + head + v * static_cast<int>(kLanes));
    }
  }
}

/// Products of kKeys keys with all heads: dots (kKeys, kMaxPadded).
template <int kKeys, bool kListed>
HWY_INLINE void multiply_keys(const Lanes& query, const Batch& batch,
                              std::int32_t* HWY_RESTRICT dots) {
  constexpr int kTwoVectors = 2 * static_cast<int>(kLanes);
  int head = 0;
  for (; head + kTwoVectors <= query.padded_heads; head += kTwoVectors) {
    dots_of_heads<kKeys, 2, kListed>(query, batch, head, dots);
  }
  for (; head < query.padded_heads; head += static_cast<int>(kLanes)) {
    dots_of_heads<kKeys, 1, kListed>(query, batch, head, dots);
  }
}

/// Products of a batch with q^. A batch that is not full costs little more than its keys.
HWY_INLINE void multiply_batch(const plan::QueryPack& query, const Batch& batch,
                               std::int32_t* HWY_RESTRICT dots) {
  const Lanes lanes{query.pairs, nullptr, query.head_dim / 2, query.padded_heads};
  if (batch.count > 4) {
    multiply_keys<kBatch, false>(lanes, batch, dots);
  } else if (batch.count > 2) {
    multiply_keys<4, false>(lanes, batch, dots);
  } else if (batch.count > 1) {
    multiply_keys<2, false>(lanes, batch, dots);
  } else {
    multiply_keys<1, false>(lanes, batch, dots);
  }
}

/// Products of a batch with q_lo.
HWY_INLINE void multiply_low(const plan::QueryPack& query, const Batch& batch,
                             std::int32_t* HWY_RESTRICT dots) {
  const Lanes lanes{query.low_pairs, query.low_column, query.num_low, query.padded_heads};
  multiply_keys<kBatch, true>(lanes, batch, dots);
}

/// q_lo . k^ of one key, all heads.
HWY_INLINE void low_query_dots(const plan::QueryPack& query, const std::int32_t* HWY_RESTRICT row,
                               std::int32_t* HWY_RESTRICT low) {
  const DI di;
  for (int lane = 0; lane < query.padded_heads; lane += static_cast<int>(kLanes)) {
    VI sum = hn::Zero(di);
    for (int n = 0; n < query.num_low; ++n) {
      const VI pair = hn::Set(di, row[query.low_column[n]]);
      sum = dot_pairs(sum, pair,
                      hn::Load(di, query.low_pairs +
                                       n * static_cast<std::ptrdiff_t>(query.padded_heads) + lane));
    }
    hn::Store(sum, di, low + lane);
  }
}

HWY_INLINE std::int32_t packed(const plan::LowPair& entry) {
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint16_t>(entry.second));
  return static_cast<std::int32_t>(static_cast<std::uint16_t>(entry.first) | (high << 16));
}

HWY_INLINE bool has_low(const plan::KeyTile& tile, int key) {
  return tile.low_begin[key + 1] != tile.low_begin[key];
}

/// q^ . k_lo and q_lo . k_lo of one key, all heads.
HWY_INLINE void low_key_dots(const plan::QueryPack& query, const plan::KeyTile& tile, int key,
                             std::int32_t* HWY_RESTRICT hat_low,
                             std::int32_t* HWY_RESTRICT low_low) {
  const DI di;
  for (int lane = 0; lane < query.padded_heads; lane += static_cast<int>(kLanes)) {
    VI with_hat = hn::Zero(di);
    VI with_low = hn::Zero(di);
    for (std::uint32_t n = tile.low_begin[key]; n < tile.low_begin[key + 1]; ++n) {
      const plan::LowPair& entry = tile.low[n];
      const VI pair = hn::Set(di, packed(entry));
      const std::ptrdiff_t row = entry.pair * static_cast<std::ptrdiff_t>(query.padded_heads);
      with_hat = dot_pairs(with_hat, pair, hn::Load(di, query.pairs + row + lane));
      const std::ptrdiff_t low_row = query.low_row[entry.pair];
      if (low_row < 0) continue;
      with_low = dot_pairs(with_low, pair,
                           hn::Load(di, query.low_pairs + low_row * query.padded_heads + lane));
    }
    hn::Store(with_hat, di, hat_low + lane);
    hn::Store(with_low, di, low_low + lane);
  }
}

/// Integer products of a batch of keys with all heads.
struct Products {
  HWY_ALIGN std::int32_t dots[kBatch * kMaxPadded];     // q^ . k^
  HWY_ALIGN std::int32_t low[kBatch * kMaxPadded];      // q_lo . k^
  HWY_ALIGN std::int32_t hat_low[kBatch * kMaxPadded];  // q^ . k_lo
  HWY_ALIGN std::int32_t low_low[kBatch * kMaxPadded];  // q_lo . k_lo
};

/// Keys pick[begin ..] of the tile; behind the last one, it is repeated.
HWY_INLINE Batch take_batch(const plan::KeyTile& tile, const std::uint16_t* pick, int begin,
                            int count) {
  const auto* rows = reinterpret_cast<const std::int32_t*>(tile.rows);
  Batch batch{};
  batch.count = count - begin < kBatch ? count - begin : kBatch;
  for (int k = 0; k < kBatch; ++k) {
    const int n = k < batch.count ? begin + k : count - 1;
    batch.key[k] = pick != nullptr ? pick[n] : n;
    batch.rows[k] = rows + batch.key[k] * static_cast<std::ptrdiff_t>(tile.head_dim / 2);
  }
  return batch;
}

/// The products with low parts of one key, which are few.
HWY_INLINE void correct_key(const plan::QueryPack& query, const plan::KeyTile& tile,
                            const Batch& batch, int k, Products& products) {
  const int at = k * kMaxPadded;
  if (query.num_low != 0) low_query_dots(query, batch.rows[k], products.low + at);
  if (has_low(tile, batch.key[k])) {
    low_key_dots(query, tile, batch.key[k], products.hat_low + at, products.low_low + at);
  }
}

/// The products with low parts of a batch, which are many.
HWY_INLINE void correct_batch(const plan::QueryPack& query, const plan::KeyTile& tile,
                              const Batch& batch, Products& products) {
  std::int32_t rows[kBatch][DOSA_MAX_HEAD_DIM / 2];
  Batch low = batch;
  for (int k = 0; k < kBatch; ++k) {
    std::fill(rows[k], rows[k] + tile.head_dim / 2, 0);
    const int key = batch.key[k];
    for (std::uint32_t n = tile.low_begin[key]; n < tile.low_begin[key + 1]; ++n) {
      rows[k][tile.low[n].pair] = packed(tile.low[n]);
    }
    low.rows[k] = rows[k];
  }
  multiply_batch(query, low, products.hat_low);
  multiply_low(query, batch, products.low);
  multiply_low(query, low, products.low_low);
}

HWY_INLINE bool has_dense_low(const plan::QueryPack& query, const plan::KeyTile& tile) {
  const auto pairs = static_cast<int>(tile.low_begin[tile.count]);
  return query.num_low > kDenseLow || pairs > kDenseLow * tile.count;
}

}  // namespace HWY_NAMESPACE
}  // namespace dosa::refine
HWY_AFTER_NAMESPACE();
#endif  // DOSA_SIMD

#endif  // include guard
