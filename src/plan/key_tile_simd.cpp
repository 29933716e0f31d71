// SPDX-License-Identifier: Apache-2.0
// build_tile for AVX2 and AVX-512; equal to build_tile_ref in every output.
#include "numeric/simd.hpp"
#include "plan/operands.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/key_tile_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/simd_dot-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::plan {
namespace HWY_NAMESPACE {

#if DOSA_SIMD
using namespace ::dosa::HWY_NAMESPACE;

using DF16 = hn::Rebind<hwy::float16_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;
using DI16 = hn::Rebind<std::int16_t, DF>;

/// Decoded values, units of 2^-9; returns false if there is a NaN code.
HWY_INLINE bool decode_key(const std::uint8_t* HWY_RESTRICT codes, int dims,
                           float* HWY_RESTRICT units) {
  const DF df;
  const DU16 du16;
  const VF to_units = hn::Set(df, 131072.0F);  // fp16 bits of a code stand for value 2^-8
  auto nan = hn::Zero(du16);
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    const auto code = hn::PromoteTo(du16, hn::LoadU(DU8(), codes + d));
    const auto magnitude = hn::And(code, hn::Set(du16, 0x7F));
    nan = hn::Max(nan, magnitude);
    const auto sign = hn::ShiftLeft<8>(hn::Xor(code, magnitude));
    const auto half = hn::BitCast(DF16(), hn::Or(sign, hn::ShiftLeft<7>(magnitude)));
    hn::Store(hn::Mul(hn::PromoteTo(df, half), to_units), df, units + d);
  }
  HWY_ALIGN std::uint16_t lanes[kLanes];
  hn::Store(nan, du16, lanes);
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (lanes[i] == 0x7F) return false;
  }
  return true;
}

/// Sums of squares are exact: at most 256 integers below 2^36 in double lanes.
HWY_INLINE std::int64_t squared_norm(const float* HWY_RESTRICT values, int count) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> half;
  auto sum = hn::Zero(dd);
  for (int d = 0; d < count; d += static_cast<int>(hn::Lanes(dd))) {
    const auto value = hn::PromoteTo(dd, hn::LoadU(half, values + d));
    sum = hn::MulAdd(value, value, sum);
  }
  return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(dd, sum)));
}

HWY_INLINE std::int32_t largest_magnitude(const float* HWY_RESTRICT units, int dims) {
  const DF df;
  VF largest = hn::Zero(df);
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    largest = hn::Max(largest, hn::Abs(hn::Load(df, units + d)));
  }
  return static_cast<std::int32_t>(hn::GetLane(hn::MaxOfLanes(df, largest)));
}

/// k^ = floor(k / 2^s + 1/2) to `hat`, k_lo to `low`; returns whether any k_lo is non-zero.
HWY_INLINE bool round_key(const float* HWY_RESTRICT units, int dims, int shift,
                          std::int16_t* HWY_RESTRICT hat, float* HWY_RESTRICT low) {
  const DF df;
  const DI di;
  const VF unit = hn::Set(df, static_cast<float>(1 << shift));
  const VF inverse = hn::Set(df, 1.0F / static_cast<float>(1 << shift));
  const VF half = hn::Set(df, shift == 0 ? 0.0F : 0.5F);
  VF any = hn::Zero(df);
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    const VF value = hn::Load(df, units + d);
    const VF rounded = hn::Floor(hn::MulAdd(value, inverse, half));
    const VF rest = hn::NegMulAdd(rounded, unit, value);
    hn::Store(rest, df, low + d);
    any = hn::Or(any, rest);
    hn::StoreU(hn::DemoteTo(DI16(), hn::ConvertTo(di, rounded)), DI16(), hat + d);
  }
  return !hn::AllTrue(df, hn::Eq(any, hn::Zero(df)));
}

/// Vector of 128-bit pieces, one from every fourth key.
HWY_INLINE VI load_pieces(const std::int32_t* HWY_RESTRICT from, std::ptrdiff_t key_stride) {
  const auto piece = [&](int block) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4 * block * key_stride));
  };
#if HWY_TARGET == HWY_AVX2
  return VI{_mm256_inserti128_si256(_mm256_castsi128_si256(piece(0)), piece(1), 1)};
#else
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(piece(0)), piece(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(piece(2)), piece(3), 1);
  return VI{_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
#endif
}

/// Transposes one block of kLanes keys: lane i of vector j is pair j of key i.
HWY_INLINE void transpose_block(const std::int32_t* HWY_RESTRICT rows, int pairs,
                                std::int32_t* HWY_RESTRICT columns) {
  const DI di;
  const hn::RepartitionToWide<DI> wide;
  for (int j = 0; j < pairs; j += 4) {
    const VI k0 = load_pieces(rows + j, pairs);
    const VI k1 = load_pieces(rows + pairs + j, pairs);
    const VI k2 = load_pieces(rows + 2 * pairs + j, pairs);
    const VI k3 = load_pieces(rows + 3 * pairs + j, pairs);
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(di, k0, k1));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(di, k2, k3));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(di, k0, k1));
    const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(di, k2, k3));
    std::int32_t* to = columns + j * static_cast<std::ptrdiff_t>(kLanes);
    hn::Store(hn::BitCast(di, hn::InterleaveLower(wide, low01, low23)), di, to);
    hn::Store(hn::BitCast(di, hn::InterleaveUpper(wide, low01, low23)), di, to + kLanes);
    hn::Store(hn::BitCast(di, hn::InterleaveLower(wide, high01, high23)), di, to + 2 * kLanes);
    hn::Store(hn::BitCast(di, hn::InterleaveUpper(wide, high01, high23)), di, to + 3 * kLanes);
  }
}

void build_tile(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                KeyTile& tile) {
  tile.first = first;
  tile.ids = ids;
  tile.count = count;
  const int dims = tile.head_dim;
  const int pairs = dims / 2;
  HWY_ALIGN float units[256];
  HWY_ALIGN float low[256];
  std::uint32_t num_low = 0;
  for (int i = 0; i < count; ++i) {
    const std::int64_t id = tile.id(i);
    std::int16_t* hat = tile.rows + static_cast<std::ptrdiff_t>(i) * dims;
    KeySums sums{};
    if (!decode_key(keys.codes + id * keys.stride, dims, units)) {
      for (int d = 0; d < dims; ++d) units[d] = 0.0F;
    }
    sums.squared = squared_norm(units, dims);
    sums.shift = split_shift(sums.squared, largest_magnitude(units, dims), kKeyNorm);
    const bool any_low = round_key(units, dims, sums.shift, hat, low);
    if (any_low) sums.low_squared = squared_norm(low, dims);
    for (int g = 0; g < tile.groups; ++g) {
      const int width = dims / tile.groups;
      sums.group_squared[g] = squared_norm(units + g * width, width);
    }
    finish_key(sums, keys.scale[id], i, tile);
    tile.low_begin[i] = num_low;
    for (int j = 0; j < pairs && any_low; ++j) {
      if (low[2 * j] != 0.0F || low[2 * j + 1] != 0.0F) {
        tile.low[num_low++] = {static_cast<std::uint16_t>(j), static_cast<std::int16_t>(low[2 * j]),
                               static_cast<std::int16_t>(low[2 * j + 1])};
      }
    }
  }
  tile.low_begin[count] = num_low;
  if (tile.columns == nullptr) return;
  const auto* rows = reinterpret_cast<const std::int32_t*>(tile.rows);
  for (int block = 0; block * static_cast<int>(kLanes) < count; ++block) {
    const std::ptrdiff_t offset = block * static_cast<std::ptrdiff_t>(kLanes) * pairs;
    transpose_block(rows + offset, pairs, tile.columns + offset);
  }
}

int lanes() { return static_cast<int>(kLanes); }

#else  // DOSA_SIMD

void build_tile(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                KeyTile& tile) {
  build_tile_ref(keys, first, ids, count, tile);
}
int lanes() { return 8; }

#endif  // DOSA_SIMD

const char* name() {
#if HWY_TARGET == HWY_AVX3_DL
  return "AVX3_DL";
#elif HWY_TARGET == HWY_AVX3
  return "AVX3";
#elif HWY_TARGET == HWY_AVX2
  return "AVX2";
#else
  return "scalar";
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace dosa::plan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dosa::plan {

HWY_EXPORT(build_tile);
HWY_EXPORT(lanes);
HWY_EXPORT(name);

void build_tile(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                KeyTile& tile) {
  HWY_DYNAMIC_DISPATCH(build_tile)(keys, first, ids, count, tile);
}
int simd_lanes() { return HWY_DYNAMIC_DISPATCH(lanes)(); }
const char* simd_name() { return HWY_DYNAMIC_DISPATCH(name)(); }

}  // namespace dosa::plan
#endif  // HWY_ONCE
