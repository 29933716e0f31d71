// SPDX-License-Identifier: Apache-2.0
// Full scores with lanes = heads: a key's pairs are broadcast against the packed query, so that
// keys need no rearranging, whether they come as a block or were picked one by one.
#include "numeric/simd.hpp"
#include "refine/score.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "refine/score_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/simd_dot-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::refine {
namespace HWY_NAMESPACE {

#if DOSA_SIMD
using namespace ::dosa::HWY_NAMESPACE;

// Keys scored together: 2 * kBatch accumulators, the packed query read once for all of them.
inline constexpr int kBatch = kLanes == 16 ? 8 : 4;
inline constexpr int kMaxPadded = 128;
inline constexpr float kDotUnit = 0x1p-18F;

struct Batch {
  const std::int32_t* rows[kBatch];  // (D / 2) pairs of k^
  int key[kBatch];                   // position in the tile
};

/// q^ . k^ for kVectors vectors of heads from lane `head`.
template <int kVectors>
HWY_INLINE void dots_of_heads(const plan::QueryPack& query, const Batch& batch, int head,
                              std::int32_t* HWY_RESTRICT dots) {
  const DI di;
  const std::ptrdiff_t lanes = query.padded_heads;
  VI acc[kBatch][kVectors];
  for (int k = 0; k < kBatch; ++k) {
    for (int v = 0; v < kVectors; ++v) acc[k][v] = hn::Zero(di);
  }
  const std::int32_t* HWY_RESTRICT pairs = query.pairs + head;
  for (int j = 0; j < query.head_dim / 2; ++j) {
    VI q[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      q[v] = hn::Load(di, pairs + j * lanes + v * static_cast<int>(kLanes));
    }
#pragma GCC unroll 8
    for (int k = 0; k < kBatch; ++k) {
      const VI pair = hn::Set(di, batch.rows[k][j]);
      for (int v = 0; v < kVectors; ++v) acc[k][v] = dot_pairs(acc[k][v], pair, q[v]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kBatch; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(acc[k][v], di, dots + k * kMaxPadded + head + v * static_cast<int>(kLanes));
    }
  }
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
      const std::uint32_t bits =
          static_cast<std::uint16_t>(entry.first) |
          (static_cast<std::uint32_t>(static_cast<std::uint16_t>(entry.second)) << 16);
      const VI pair = hn::Set(di, static_cast<std::int32_t>(bits));
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

using DD = hn::ScalableTag<double>;
using DI32Half = hn::Rebind<std::int32_t, DD>;
using DF32Half = hn::Rebind<float, DD>;

/// The dot products of one key as fp32, rounded once (N3): relu applied, written to x.
HWY_INLINE void round_dots(const plan::QueryPack& query, const plan::KeyTile& tile, int key,
                           const std::int32_t* HWY_RESTRICT dots,
                           const std::int32_t* HWY_RESTRICT low, float* HWY_RESTRICT x) {
  const bool key_low = tile.low_begin[key + 1] != tile.low_begin[key];
  const auto key_unit = static_cast<float>(1 << tile.shift[key]);
  if (!key_low && query.num_low == 0) {
    const DF df;
    const DI di;
    const VF scale = hn::Set(df, key_unit * kDotUnit);
    for (int h = 0; h < query.padded_heads; h += static_cast<int>(kLanes)) {
      const VF value = hn::ConvertTo(df, hn::Load(di, dots + h));
      const VF unit = hn::Mul(scale, hn::Load(df, query.unit + h));  // powers of two: exact
      hn::Store(hn::Max(hn::Mul(value, unit), hn::Zero(df)), df, x + h);
    }
    return;
  }
  HWY_ALIGN std::int32_t hat_low[kMaxPadded];
  HWY_ALIGN std::int32_t low_low[kMaxPadded];
  if (key_low) low_key_dots(query, tile, key, hat_low, low_low);
  const DD dd;
  const DI32Half dih;
  const DF32Half dfh;
  const auto unit_k = hn::Set(dd, static_cast<double>(key_unit));
  const auto dot_unit = hn::Set(dd, static_cast<double>(kDotUnit));
  const auto to_value = hn::Mul(unit_k, dot_unit);
  // Powers of two scale without rounding, so the conversion to fp32 is the only one.
  for (int h = 0; h < query.padded_heads; h += static_cast<int>(hn::Lanes(dd))) {
    const auto unit_q = hn::PromoteTo(dd, hn::Load(dfh, query.unit + h));
    const auto high = hn::PromoteTo(dd, hn::Load(dih, dots + h));
    auto sum = hn::Zero(dd);
    if (query.num_low != 0) sum = hn::PromoteTo(dd, hn::Load(dih, low + h));
    sum = hn::Mul(hn::MulAdd(high, unit_q, sum), to_value);
    if (key_low) {
      const auto with_hat = hn::PromoteTo(dd, hn::Load(dih, hat_low + h));
      const auto with_low = hn::PromoteTo(dd, hn::Load(dih, low_low + h));
      sum = hn::MulAdd(hn::MulAdd(with_hat, unit_q, with_low), dot_unit, sum);
    }
    hn::Store(hn::Max(hn::DemoteTo(dfh, sum), hn::Zero(dfh)), dfh, x + h);
  }
}

/// score_chain_ref with its eight chains in eight lanes.
HWY_INLINE float score_chain(const float* HWY_RESTRICT x, const float* HWY_RESTRICT weights,
                             int heads, float scale) {
  const hn::FixedTag<float, 8> d8;
  auto t = hn::Mul(hn::Load(d8, x + 8), hn::Load(d8, weights + 8));
  t = hn::MulAdd(hn::Load(d8, x), hn::Load(d8, weights), t);
  for (int h = 16; h < chain_heads(heads); h += 8) {
    t = hn::MulAdd(hn::Load(d8, x + h), hn::Load(d8, weights + h), t);
  }
  const auto pair = hn::Mul(hn::Add(t, hn::Shuffle2301(t)), hn::Set(d8, scale));
  HWY_ALIGN float part[8];
  hn::Store(pair, d8, part);
  return (part[0] + part[2]) + (part[4] + part[6]);
}

HWY_INLINE ActiveHeads active_heads(const float* HWY_RESTRICT x, int padded_heads) {
  const DF df;
  ActiveHeads bits{};
  for (int h = 0; h < padded_heads; h += static_cast<int>(kLanes)) {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(df, hn::Gt(hn::Load(df, x + h), hn::Zero(df)), bytes);
    const std::uint64_t mask = bytes[0] | (static_cast<std::uint64_t>(bytes[1]) << 8);
    bits.word[h / 64] |= mask << (h % 64);
  }
  return bits;
}

/// Integer products of a batch of keys with all heads.
struct Products {
  HWY_ALIGN std::int32_t dots[kBatch * kMaxPadded];  // q^ . k^
  HWY_ALIGN std::int32_t low[kBatch * kMaxPadded];   // q_lo . k^
};

/// Keys pick[begin ..] of the tile; behind the last one, it is repeated.
HWY_INLINE Batch take_batch(const plan::KeyTile& tile, const std::uint16_t* pick, int begin,
                            int count) {
  const auto* rows = reinterpret_cast<const std::int32_t*>(tile.rows);
  Batch batch{};
  for (int k = 0; k < kBatch; ++k) {
    const int n = begin + k < count ? begin + k : count - 1;
    batch.key[k] = pick != nullptr ? pick[n] : n;
    batch.rows[k] = rows + batch.key[k] * static_cast<std::ptrdiff_t>(tile.head_dim / 2);
  }
  return batch;
}

HWY_INLINE void multiply_batch(const plan::QueryPack& query, const Batch& batch,
                               Products& products) {
  constexpr int kTwoVectors = 2 * static_cast<int>(kLanes);
  int head = 0;
  for (; head + kTwoVectors <= query.padded_heads; head += kTwoVectors) {
    dots_of_heads<2>(query, batch, head, products.dots);
  }
  for (; head < query.padded_heads; head += static_cast<int>(kLanes)) {
    dots_of_heads<1>(query, batch, head, products.dots);
  }
}

HWY_INLINE float exact_score(const plan::QueryPack& query, const plan::KeyTile& tile, int key,
                             const Products& products, int k, float* HWY_RESTRICT x) {
  round_dots(query, tile, key, products.dots + k * kMaxPadded, products.low + k * kMaxPadded, x);
  return score_chain(x, query.weights, query.heads, tile.scale[key]);
}

void score_keys(const plan::QueryPack& query, const plan::KeyTile& tile, const std::uint16_t* pick,
                int count, float* scores, ActiveHeads* active) {
  Products products;
  HWY_ALIGN float x[kMaxPadded];
  for (int begin = 0; begin < count; begin += kBatch) {
    const Batch batch = take_batch(tile, pick, begin, count);
    multiply_batch(query, batch, products);
    for (int k = 0; k < kBatch && begin + k < count; ++k) {
      if (query.num_low != 0) low_query_dots(query, batch.rows[k], products.low + k * kMaxPadded);
      scores[begin + k] = exact_score(query, tile, batch.key[k], products, k, x);
      if (active != nullptr) active[begin + k] = active_heads(x, query.padded_heads);
    }
  }
}

/// U of one key from its integer products.
HWY_INLINE UpperBound all_heads_bound(const plan::QueryPack& query, const plan::KeyTile& tile,
                                      const plan::AllHeadsOperand& all_heads, int key,
                                      const std::int32_t* HWY_RESTRICT dots) {
  const DF df;
  const DI di;
  VF sum = hn::Zero(df);
  for (int h = 0; h < query.padded_heads; h += static_cast<int>(kLanes)) {
    const VF x = hn::Max(hn::ConvertTo(df, hn::Load(di, dots + h)), hn::Zero(df));
    sum = hn::MulAdd(hn::Load(df, all_heads.coefficient + h), x, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(df, sum)) + all_heads.floor;
  total += all_heads.norm_term * tile.norm[key];
  total += all_heads.low_term * tile.low_norm[key];
  return UpperBound(total * tile.factor[key]);
}

int refine_keys(const plan::QueryPack& query, const plan::KeyTile& tile,
                const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                float* bounds) {
  Products products;
  HWY_ALIGN float x[kMaxPadded];
  int left = 0;
  for (int begin = 0; begin < count; begin += kBatch) {
    const Batch batch = take_batch(tile, pick, begin, count);
    multiply_batch(query, batch, products);
    for (int k = 0; k < kBatch && begin + k < count; ++k) {
      const UpperBound bound =
          all_heads_bound(query, tile, all_heads, batch.key[k], products.dots + k * kMaxPadded);
      if (bounds != nullptr) bounds[begin + k] = bound.value;
      if (rejects(bound, guarded)) continue;
      if (query.num_low != 0) low_query_dots(query, batch.rows[k], products.low + k * kMaxPadded);
      kept[left] = pick[begin + k];
      scores[left++] = exact_score(query, tile, batch.key[k], products, k, x);
    }
  }
  return left;
}

#else  // DOSA_SIMD

void score_keys(const plan::QueryPack& query, const plan::KeyTile& tile, const std::uint16_t* pick,
                int count, float* scores, ActiveHeads* active) {
  score_keys_ref(query, tile, pick, count, scores, active);
}

int refine_keys(const plan::QueryPack& query, const plan::KeyTile& tile,
                const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                float* bounds) {
  return refine_keys_ref(query, tile, all_heads, guarded, pick, count, kept, scores, bounds);
}

#endif  // DOSA_SIMD

}  // namespace HWY_NAMESPACE
}  // namespace dosa::refine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dosa::refine {

HWY_EXPORT(score_keys);
HWY_EXPORT(refine_keys);

void score_keys(const plan::QueryPack& query, const plan::KeyTile& tile, const std::uint16_t* pick,
                int count, float* scores, ActiveHeads* active) {
  HWY_DYNAMIC_DISPATCH(score_keys)(query, tile, pick, count, scores, active);
}

int refine_keys(const plan::QueryPack& query, const plan::KeyTile& tile,
                const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                float* bounds) {
  return HWY_DYNAMIC_DISPATCH(refine_keys)(query, tile, all_heads, guarded, pick, count, kept,
                                           scores, bounds);
}

}  // namespace dosa::refine
#endif  // HWY_ONCE
