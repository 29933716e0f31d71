// SPDX-License-Identifier: Apache-2.0
// Full scores with lanes = heads: a key's pairs are broadcast against the packed query, so that
// keys need no rearranging, whether they come as a block or were picked one by one.
#include "numeric/simd.hpp"
#include "refine/score.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "refine/score_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "refine/products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::refine {
namespace HWY_NAMESPACE {

#if DOSA_SIMD
using namespace ::dosa::HWY_NAMESPACE;

inline constexpr float kDotUnit = 0x1p-18F;

using DD = hn::ScalableTag<double>;
using DI32Half = hn::Rebind<std::int32_t, DD>;
using DF32Half = hn::Rebind<float, DD>;

/// The dot products of one key as fp32, rounded once (N3): relu applied, written to x.
HWY_INLINE void round_dots(const plan::QueryPack& query, const plan::KeyTile& tile, int key,
                           const std::int32_t* HWY_RESTRICT dots,
                           const std::int32_t* HWY_RESTRICT low,
                           const std::int32_t* HWY_RESTRICT hat_low,
                           const std::int32_t* HWY_RESTRICT low_low, float* HWY_RESTRICT x) {
  const bool key_low = has_low(tile, key);
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

HWY_INLINE float exact_score(const plan::QueryPack& query, const plan::KeyTile& tile, int key,
                             const Products& products, int k, float* HWY_RESTRICT x) {
  const int at = k * kMaxPadded;
  round_dots(query, tile, key, products.dots + at, products.low + at, products.hat_low + at,
             products.low_low + at, x);
  return score_chain(x, query.weights, query.heads, tile.scale[key]);
}

void score_keys(const plan::QueryPack& query, const plan::KeyTile& tile, const std::uint16_t* pick,
                int count, float* scores, ActiveHeads* active) {
  Products products;
  HWY_ALIGN float x[kMaxPadded];
  const bool dense = has_dense_low(query, tile);
  for (int begin = 0; begin < count; begin += kBatch) {
    const Batch batch = take_batch(tile, pick, begin, count);
    multiply_batch(query, batch, products.dots);
    if (dense) correct_batch(query, tile, batch, products);
    for (int k = 0; k < batch.count; ++k) {
      if (!dense) correct_key(query, tile, batch, k, products);
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
  const bool dense = has_dense_low(query, tile);
  int left = 0;
  for (int begin = 0; begin < count; begin += kBatch) {
    const Batch batch = take_batch(tile, pick, begin, count);
    multiply_batch(query, batch, products.dots);
    for (int k = 0; k < batch.count; ++k) {
      const UpperBound bound =
          all_heads_bound(query, tile, all_heads, batch.key[k], products.dots + k * kMaxPadded);
      if (bounds != nullptr) bounds[begin + k] = bound.value;
      if (rejects(bound, guarded)) continue;
      kept[left] = pick[begin + k];
      if (!dense) {
        correct_key(query, tile, batch, k, products);
        scores[left] = exact_score(query, tile, batch.key[k], products, k, x);
      }
      ++left;
    }
  }
  if (dense) score_keys(query, tile, kept, left, scores, nullptr);  // in full batches
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
