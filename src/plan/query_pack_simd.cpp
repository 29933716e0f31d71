// SPDX-License-Identifier: Apache-2.0
// pack_query for AVX2 and AVX-512; equal to pack_query_ref in every output.
#include <cmath>

#include "numeric/outward.hpp"
#include "numeric/simd.hpp"
#include "plan/operands.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/query_pack_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plan/split-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::plan {
namespace HWY_NAMESPACE {

#if DOSA_SIMD

HWY_INLINE double rounded_up_norm(std::int64_t squared) {
  return outward(std::sqrt(static_cast<double>(squared)));
}

/// Splits one head; returns whether it has a NaN code.
HWY_INLINE bool split_head(const std::uint8_t* HWY_RESTRICT codes, int h, int dims,
                           QueryRows& rows) {
  HWY_ALIGN float units[DOSA_MAX_HEAD_DIM];
  HWY_ALIGN float low[DOSA_MAX_HEAD_DIM];
  const DF df;
  const DI di;
  const Decoded decoded = decode(codes, dims, units);
  const int shift = split_shift(decoded.squared, decoded.largest, kQueryNorm);
  std::int16_t* hat = rows.hat + static_cast<std::ptrdiff_t>(h) * dims;
  std::int16_t* low_out = rows.low + static_cast<std::ptrdiff_t>(h) * dims;
  const bool any_low = round_units(units, dims, shift, hat, low);
  const VF inverse = hn::Set(df, 1.0F / static_cast<float>(1 << shift));
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    const VF rest = hn::Load(df, low + d);
    hn::StoreU(hn::DemoteTo(DI16(), hn::ConvertTo(di, rest)), DI16(), low_out + d);
    hn::Store(hn::Mul(hn::Sub(hn::Load(df, units + d), rest), inverse), df, units + d);
  }
  rows.shift[h] = static_cast<std::uint8_t>(shift);
  rows.norm[h] = rounded_up_norm(decoded.squared);
  rows.hat_norm[h] = rounded_up_norm(squared_norm(units, dims));
  rows.low_norm[h] = any_low ? rounded_up_norm(squared_norm(low, dims)) : 0.0;
  return decoded.is_nan;
}

void pack_query(const std::uint8_t* codes, const float* weights, QueryPack& pack, QueryRows& rows) {
  const int dims = pack.head_dim;
  pack.finite = true;
  for (int h = 0; h < pack.padded_heads; ++h) {
    pack.weights[h] = h < pack.heads ? weights[h] : 0.0F;
    pack.unit[h] = 1.0F;
    if (h >= pack.heads) continue;
    const bool is_nan = split_head(codes + static_cast<std::ptrdiff_t>(h) * dims, h, dims, rows);
    pack.unit[h] = static_cast<float>(1 << rows.shift[h]);
    pack.finite = pack.finite && std::isfinite(weights[h]) && !is_nan;
  }
  HWY_ALIGN std::int16_t last[kLanes * DOSA_MAX_HEAD_DIM];
  const auto* hat = reinterpret_cast<const std::int32_t*>(rows.hat);
  for (int h = 0; h < pack.padded_heads; h += static_cast<int>(kLanes)) {
    const std::int32_t* from = hat + static_cast<std::ptrdiff_t>(h) * (dims / 2);
    if (h + static_cast<int>(kLanes) > pack.heads) {  // padding heads are zero heads
      const int real = (pack.heads > h ? pack.heads - h : 0) * dims;
      const std::int16_t* rest = rows.hat + static_cast<std::ptrdiff_t>(h) * dims;
      for (int n = 0; n < static_cast<int>(kLanes) * dims; ++n) last[n] = n < real ? rest[n] : 0;
      from = reinterpret_cast<const std::int32_t*>(last);
    }
    transpose_rows(from, dims / 2, pack.pairs + h, pack.padded_heads);
  }
  pack_low_columns(rows, pack);
}

#else  // DOSA_SIMD

void pack_query(const std::uint8_t* codes, const float* weights, QueryPack& pack, QueryRows& rows) {
  pack_query_ref(codes, weights, pack, rows);
}

#endif  // DOSA_SIMD

}  // namespace HWY_NAMESPACE
}  // namespace dosa::plan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dosa::plan {

HWY_EXPORT(pack_query);

void pack_query(const std::uint8_t* codes, const float* weights, QueryPack& pack, QueryRows& rows) {
  HWY_DYNAMIC_DISPATCH(pack_query)(codes, weights, pack, rows);
}

}  // namespace dosa::plan
#endif  // HWY_ONCE
