// SPDX-License-Identifier: Apache-2.0
// Instruction sets compiled by the *_simd.cpp files, through Highway's dynamic dispatch: AVX2,
// AVX-512 (AVX3) and AVX-512 with VNNI (AVX3_DL). Everything else runs the scalar references.
// Include before hwy/highway.h and hwy/foreach_target.h.
#ifndef DOSA_NUMERIC_SIMD_HPP
#define DOSA_NUMERIC_SIMD_HPP

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)

#endif  // DOSA_NUMERIC_SIMD_HPP
