// SPDX-License-Identifier: Apache-2.0
// The one instruction all scoring rests on: exact int16 x int16 pair products added to int32 lanes.
// Included once per instruction set, after hwy/highway.h.
#if defined(DOSA_NUMERIC_SIMD_DOT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DOSA_NUMERIC_SIMD_DOT_INL_HPP
#undef DOSA_NUMERIC_SIMD_DOT_INL_HPP
#else
#define DOSA_NUMERIC_SIMD_DOT_INL_HPP
#endif

// Highway 1.0.3 detects AVX512-VNNI for AVX3_DL but does not enable it for the compiler.
#if HWY_TARGET == HWY_AVX3_DL
#undef HWY_TARGET_STR
#define HWY_TARGET_STR                                                       \
  HWY_TARGET_STR_AVX3                                                        \
  ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512vnni,avx512bitalg," \
  "avx512vpopcntdq"
#endif

// Whether this target runs the SIMD kernels; the others forward to the scalar references.
#undef DOSA_SIMD
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define DOSA_SIMD 1
#else
#define DOSA_SIMD 0
#endif

#if DOSA_SIMD
HWY_BEFORE_NAMESPACE();
namespace dosa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::ScalableTag<std::int32_t>;
using DF = hn::ScalableTag<float>;
using VI = hn::Vec<DI>;
using VF = hn::Vec<DF>;
inline constexpr std::size_t kLanes = HWY_LANES(std::int32_t);

/// acc + a.lo * b.lo + a.hi * b.hi per 32-bit lane of int16 pairs. Exact while |sum| < 2^31.
HWY_INLINE VI dot_pairs(VI acc, VI a, VI b) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_dpwssd_epi32(acc.raw, a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX3
  return VI{_mm512_add_epi32(acc.raw, _mm512_madd_epi16(a.raw, b.raw))};
#else
  return VI{_mm256_add_epi32(acc.raw, _mm256_madd_epi16(a.raw, b.raw))};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace dosa
HWY_AFTER_NAMESPACE();
#endif  // DOSA_SIMD

#endif  // include guard
