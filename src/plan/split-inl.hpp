// SPDX-License-Identifier: Apache-2.0
// SIMD pieces that split an e4m3 vector into integers. Included once per instruction set.
#if defined(DOSA_PLAN_SPLIT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DOSA_PLAN_SPLIT_INL_HPP
#undef DOSA_PLAN_SPLIT_INL_HPP
#else
#define DOSA_PLAN_SPLIT_INL_HPP
#endif

#include <cstddef>
#include <cstdint>

#include "numeric/simd_dot-inl.hpp"
#include "plan/operands.hpp"

#if DOSA_SIMD
HWY_BEFORE_NAMESPACE();
namespace dosa::plan {
namespace HWY_NAMESPACE {
using namespace ::dosa::HWY_NAMESPACE;

using DF16 = hn::Rebind<hwy::float16_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;
using DI16 = hn::Rebind<std::int16_t, DF>;

/// A decoded vector, units of 2^-9, and what follows from it.
struct Decoded {
  std::int64_t squared;
  std::int32_t largest;
  bool is_nan;  // a NaN code: all values are 0
};

/// Sum of squares of integers below 2^18 in magnitude: exact in double lanes. Four sums in flight.
HWY_INLINE std::int64_t squared_norm(const float* HWY_RESTRICT values, int count) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> half;
  const int step = static_cast<int>(hn::Lanes(dd));
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  auto sum2 = hn::Zero(dd);
  auto sum3 = hn::Zero(dd);
  const auto square = [&](int d, decltype(sum0) sum) HWY_ATTR {
    const auto value = hn::PromoteTo(dd, hn::LoadU(half, values + d));
    return hn::MulAdd(value, value, sum);
  };
  int d = 0;
  for (; d + 4 * step <= count; d += 4 * step) {
    sum0 = square(d, sum0);
    sum1 = square(d + step, sum1);
    sum2 = square(d + 2 * step, sum2);
    sum3 = square(d + 3 * step, sum3);
  }
  for (; d < count; d += step) sum0 = square(d, sum0);
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(dd, sum)));
}

HWY_INLINE Decoded decode(const std::uint8_t* HWY_RESTRICT codes, int dims,
                          float* HWY_RESTRICT units) {
  const DF df;
  const DU16 du16;
  const VF to_units = hn::Set(df, 131072.0F);  // the bits of a code, read as fp16, are value 2^-8
  auto largest_code = hn::Zero(du16);
  VF largest = hn::Zero(df);
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    const auto code = hn::PromoteTo(du16, hn::LoadU(DU8(), codes + d));
    const auto magnitude = hn::And(code, hn::Set(du16, 0x7F));
    largest_code = hn::Max(largest_code, magnitude);
    const auto sign = hn::ShiftLeft<8>(hn::Xor(code, magnitude));
    const auto half = hn::BitCast(DF16(), hn::Or(sign, hn::ShiftLeft<7>(magnitude)));
    const VF value = hn::Mul(hn::PromoteTo(df, half), to_units);
    largest = hn::Max(largest, hn::Abs(value));
    hn::Store(value, df, units + d);
  }
  const auto nan = hn::Eq(largest_code, hn::Set(du16, 0x7F));
  if (!hn::AllFalse(du16, nan)) {
    for (int d = 0; d < dims; d += static_cast<int>(kLanes)) hn::Store(hn::Zero(df), df, units + d);
    return {0, 0, true};
  }
  return {squared_norm(units, dims),
          static_cast<std::int32_t>(hn::GetLane(hn::MaxOfLanes(df, largest))), false};
}

/// x^ = x / 2^s rounded to nearest even, to `hat`; x_lo to `low`; returns whether any x_lo is not
/// 0.
HWY_INLINE bool round_units(const float* HWY_RESTRICT units, int dims, int shift,
                            std::int16_t* HWY_RESTRICT hat, float* HWY_RESTRICT low) {
  const DF df;
  const DI di;
  const VF unit = hn::Set(df, static_cast<float>(1 << shift));
  const VF inverse = hn::Set(df, 1.0F / static_cast<float>(1 << shift));
  const VF magic = hn::Set(df, 0x1.8p23F);  // adding it leaves an integer in the low bits
  VF any = hn::Zero(df);
  for (int d = 0; d < dims; d += static_cast<int>(kLanes)) {
    const VF value = hn::Load(df, units + d);
    const VF shifted = hn::MulAdd(value, inverse, magic);
    const VF rest = hn::NegMulAdd(hn::Sub(shifted, magic), unit, value);
    hn::Store(rest, df, low + d);
    any = hn::Or(any, rest);
    const VI integer = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
    hn::StoreU(hn::DemoteTo(DI16(), integer), DI16(), hat + d);
  }
  return !hn::AllTrue(df, hn::Eq(any, hn::Zero(df)));
}

/// Vector of 128-bit pieces, one from every fourth row.
HWY_INLINE VI load_pieces(const std::int32_t* HWY_RESTRICT from, std::ptrdiff_t row_stride) {
  const auto piece = [&](int block) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4 * block * row_stride));
  };
#if HWY_TARGET == HWY_AVX2
  return VI{_mm256_inserti128_si256(_mm256_castsi128_si256(piece(0)), piece(1), 1)};
#else
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(piece(0)), piece(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(piece(2)), piece(3), 1);
  return VI{_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
#endif
}

/// Transposes kLanes rows of pairs: lane i of the vector at columns + j * stride is pair j of row
/// i.
HWY_INLINE void transpose_rows(const std::int32_t* HWY_RESTRICT rows, int pairs,
                               std::int32_t* HWY_RESTRICT columns, std::ptrdiff_t stride) {
  const DI di;
  const hn::RepartitionToWide<DI> wide;
  for (int j = 0; j < pairs; j += 4) {
    const VI r0 = load_pieces(rows + j, pairs);
    const VI r1 = load_pieces(rows + pairs + j, pairs);
    const VI r2 = load_pieces(rows + 2 * pairs + j, pairs);
    const VI r3 = load_pieces(rows + 3 * pairs + j, pairs);
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(di, r0, r1));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(di, r2, r3));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(di, r0, r1));
    const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(di, r2, r3));
    std::int32_t* to = columns + j * stride;
    hn::Store(hn::BitCast(di, hn::InterleaveLower(wide, low01, low23)), di, to);
    hn::Store(hn::BitCast(di, hn::InterleaveUpper(wide, low01, low23)), di, to + stride);
    hn::Store(hn::BitCast(di, hn::InterleaveLower(wide, high01, high23)), di, to + 2 * stride);
    hn::Store(hn::BitCast(di, hn::InterleaveUpper(wide, high01, high23)), di, to + 3 * stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dosa::plan
HWY_AFTER_NAMESPACE();
#endif  // DOSA_SIMD

#endif  // include guard
