// SPDX-License-Identifier: Apache-2.0
// build_tile for AVX2 and AVX-512; equal to build_tile_ref in every output.
#include <bit>
#include <limits>

#include "numeric/outward.hpp"
#include "numeric/simd.hpp"
#include "plan/operands.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/key_tile_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plan/split-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::plan {
namespace HWY_NAMESPACE {

#if DOSA_SIMD
/// Appends the non-zero pairs of one key's low part and adds up their squares.
HWY_INLINE std::uint32_t list_low(const float* HWY_RESTRICT low, int dims, LowPair* HWY_RESTRICT to,
                                  std::int64_t& squared) {
  const DF df;
  std::uint32_t count = 0;
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(df, hn::Ne(hn::Load(df, low + d), hn::Zero(df)), bytes);
    std::uint32_t bits = bytes[0] | (static_cast<std::uint32_t>(bytes[1]) << 8);
    bits = (bits | bits >> 1) & 0x5555;  // one bit per pair
    for (; bits != 0; bits &= bits - 1) {
      const int at = d + std::countr_zero(bits);
      const auto first = static_cast<std::int16_t>(low[at]);
      const auto second = static_cast<std::int16_t>(low[at + 1]);
      to[count++] = {static_cast<std::uint16_t>(at / 2), first, second};
      squared += first * first + second * second;
    }
  }
  return count;
}

#if HWY_TARGET != HWY_AVX2  // which has no shift by lane for 16-bit lanes
/// Most keys have no low part and the same shift as the key before: then k^ follows from the bits
/// of the codes alone, |x| = (mantissa) << (exponent - 1) in units of 2^-9. Returns |k^|^2, or -1
/// where the guess fails or a code is NaN and the general way must be taken.
HWY_INLINE std::int64_t split_exactly(const std::uint8_t* HWY_RESTRICT codes, int dims, int shift,
                                      std::int16_t* HWY_RESTRICT hat) {
  const hn::ScalableTag<std::uint16_t> du;
  const hn::ScalableTag<std::int16_t> di16;
  const hn::Rebind<std::uint8_t, decltype(du)> du8;
  const DI di;
  const int step = static_cast<int>(hn::Lanes(du));
  // Below shift 3 a magnitude could leave int16; other lengths take the general way.
  if (shift < 3 || dims % step != 0) return -1;
  const auto target = hn::Set(du, static_cast<std::uint16_t>(shift));
  auto largest = hn::Zero(du);
  auto lost = hn::Zero(du);
  VI high = hn::Zero(di);
  VI low = hn::Zero(di);
  for (int d = 0; d < dims; d += step) {
    const auto code = hn::PromoteTo(du, hn::LoadU(du8, codes + d));
    const auto magnitude = hn::And(code, hn::Set(du, 0x7F));
    largest = hn::Max(largest, magnitude);
    const auto exponent = hn::ShiftRight<3>(magnitude);
    const auto normal = hn::Min(exponent, hn::Set(du, 1));
    const auto mantissa = hn::Add(hn::And(magnitude, hn::Set(du, 7)), hn::ShiftLeft<3>(normal));
    const auto power = hn::Sub(exponent, normal);
    const auto value = hn::Shl(mantissa, hn::SaturatedSub(power, target));
    const auto right = hn::SaturatedSub(target, power);
    const auto rounded = hn::Shr(value, right);
    lost = hn::Or(lost, hn::Xor(value, hn::Shl(rounded, right)));
    const auto sign = hn::ShiftRight<15>(hn::BitCast(di16, hn::ShiftLeft<8>(code)));
    const auto integer = hn::Sub(hn::Xor(hn::BitCast(di16, rounded), sign), sign);
    hn::StoreU(integer, di16, hat + d);
    // Sums of pairs of squares stay below 2^31; halves of 16 bits are added up apart.
    const VI pair = dot_pairs(hn::Zero(di), hn::BitCast(di, integer), hn::BitCast(di, integer));
    high = hn::Add(high, hn::ShiftRight<16>(pair));
    low = hn::Add(low, hn::And(pair, hn::Set(di, 0xFFFF)));
  }
  const bool nan = !hn::AllFalse(du, hn::Eq(largest, hn::Set(du, 0x7F)));
  if (nan || !hn::AllTrue(du, hn::Eq(lost, hn::Zero(du)))) return -1;
  return (static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(di, high))) << 16) +
         hn::GetLane(hn::SumOfLanes(di, low));
}
#else
HWY_INLINE std::int64_t split_exactly(const std::uint8_t* HWY_RESTRICT, int, int,
                                      std::int16_t* HWY_RESTRICT) {
  return -1;
}
#endif

/// Splits a key without low part at its least shift, which is tried from `shift` on and left there.
HWY_INLINE bool split_by_guess(const std::uint8_t* HWY_RESTRICT codes, int dims, int& shift,
                               std::int64_t& squared, std::int16_t* HWY_RESTRICT hat) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::int64_t hat_squared = split_exactly(codes, dims, shift, hat);
    if (hat_squared < 0) return false;
    squared = hat_squared << (2 * shift);
    // From shift 3 on every magnitude fits int16, so that the norm alone decides.
    const int least = split_shift(squared, 0, kKeyNorm);
    if (least == shift) return true;
    shift = least;
  }
  return false;
}

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

/// key_length() of Lanes(DD) keys from key i.
HWY_INLINE void store_lengths(const double* HWY_RESTRICT squared, const KeyTile& tile, int i,
                              float* HWY_RESTRICT out) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  const hn::Rebind<std::int32_t, DD> di;
  const hn::Rebind<std::uint8_t, DD> du8;
  const auto shift = hn::PromoteTo(di, hn::LoadU(du8, tile.shift + i));
  const VD unit = hn::PromoteTo(dd, hn::Shl(hn::Set(di, 1), shift));
  const VD root = hn::Mul(hn::Sqrt(hn::Load(dd, squared + i)), hn::Set(dd, kLengthSlack));
  hn::Store(hn::DemoteTo(df, hn::Div(root, unit)), df, out + i);
}

HWY_INLINE void finish_tile(const KeySums& sums, KeyTile& tile) {
  for (int i = 0; i < tile.count; i += static_cast<int>(hn::Lanes(DD()))) {
    store_lengths(sums.squared, tile, i, tile.norm);
    store_lengths(sums.low_squared, tile, i, tile.low_norm);
    for (int g = 0; g < tile.groups; ++g) {
      store_lengths(sums.group_squared[g], tile, i, tile.group_norm + g * tile.capacity);
    }
  }
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DF> du8;
  const VF least = hn::Set(df, std::numeric_limits<float>::min());
  const VF largest = hn::Set(df, std::numeric_limits<float>::max());
  for (int i = 0; i < tile.count; i += static_cast<int>(kLanes)) {
    const VI shift = hn::PromoteTo(di, hn::LoadU(du8, tile.shift + i));
    const VF unit = hn::ConvertTo(df, hn::Shl(hn::Set(di, 1), shift));
    const VF scale = hn::Load(df, tile.scale + i);
    const VF factor = hn::Mul(scale, hn::Mul(unit, hn::Set(df, 0x1p-18F)));
    const VF product = hn::Mul(factor, hn::Load(df, tile.norm + i));
    const auto normal = hn::And(hn::And(hn::Ge(scale, least), hn::Le(scale, largest)),
                                hn::And(hn::Ge(factor, least), hn::Le(factor, largest)));
    const auto valid = hn::And(normal, hn::Le(product, hn::Set(df, kKeyProductLimit)));
    hn::Store(hn::IfThenElse(valid, factor, hn::NaN(df)), df, tile.factor + i);
  }
}

void build_tile(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                KeyTile& tile) {
  tile.first = first;
  tile.ids = ids;
  tile.count = count;
  const int dims = tile.head_dim;
  const int pairs = dims / 2;
  HWY_ALIGN float units[DOSA_MAX_HEAD_DIM];
  HWY_ALIGN float low[DOSA_MAX_HEAD_DIM];
  HWY_ALIGN KeySums sums;
  std::uint32_t num_low = 0;
  int guess = 5;  // the shift of most keys whose largest coordinate is 448
  for (int i = 0; i < count; ++i) {
    const std::int64_t id = tile.id(i);
    std::int16_t* hat = tile.rows + static_cast<std::ptrdiff_t>(i) * dims;
    std::int64_t squared = 0;
    // Group norms need the values: the general way.
    if (tile.groups == 0 &&
        split_by_guess(keys.codes + id * keys.stride, dims, guess, squared, hat)) {
      tile.shift[i] = static_cast<std::uint8_t>(guess);
      tile.scale[i] = keys.scale[id];
      tile.low_begin[i] = num_low;
      sums.squared[i] = static_cast<double>(squared);
      sums.low_squared[i] = 0.0;
      continue;
    }
    const Decoded decoded = decode(keys.codes + id * keys.stride, dims, units);
    const int shift = split_shift(decoded.squared, decoded.largest, kKeyNorm);
    guess = shift;
    tile.shift[i] = static_cast<std::uint8_t>(shift);
    tile.scale[i] = keys.scale[id];
    tile.low_begin[i] = num_low;
    std::int64_t low_squared = 0;
    if (round_units(units, dims, shift, hat, low)) {
      num_low += list_low(low, dims, tile.low + num_low, low_squared);
    }
    sums.squared[i] = static_cast<double>(decoded.squared);
    sums.low_squared[i] = static_cast<double>(low_squared);
    for (int g = 0; g < tile.groups; ++g) {
      const int width = dims / tile.groups;
      sums.group_squared[g][i] = static_cast<double>(squared_norm(units + g * width, width));
    }
  }
  finish_tile(sums, tile);
  tile.low_begin[count] = num_low;
  if (tile.columns == nullptr) return;
  const auto* rows = reinterpret_cast<const std::int32_t*>(tile.rows);
  for (int block = 0; block * static_cast<int>(kLanes) < count; ++block) {
    const std::ptrdiff_t offset = block * static_cast<std::ptrdiff_t>(kLanes) * pairs;
    transpose_rows(rows + offset, pairs, tile.columns + offset, kLanes);
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
