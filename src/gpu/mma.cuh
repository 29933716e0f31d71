// SPDX-License-Identifier: Apache-2.0
// The matrix instructions that every card from sm_80 on has, one per function.
#pragma once

#include <cstdint>

#include "gpu/copy_async.cuh"

namespace dosa::gpu {

/// ldmatrix.x4: four tiles of 8 rows x 16 bytes. Lane l gives the address of row l % 8 of tile l /
/// 8 and receives bytes 4 (l % 4) .. + 3 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t& a, uint32_t& b,
                                              uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address)
               : "memory");
}

/// mma.sync m16n8k16 f32 += f16 * f16
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// mma.sync m16n8k32 f32 += e4m3 * e4m3; one instruction on sm_89 and sm_120 only.
__device__ __forceinline__ void mma_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two e4m3 codes (byte kFirst of `word` and the next one) as two fp16 numbers. Exact; NaN codes
/// become NaN.
template <int kFirst>
__device__ __forceinline__ uint32_t decode_pair(uint32_t word) {
  static_assert(kFirst == 0 || kFirst == 2, "pairs are aligned");
  uint32_t pair = 0;
#if __CUDA_ARCH__ >= 890
  if constexpr (kFirst == 0) {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
        : "=r"(pair)
        : "r"(word));
  } else {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
        : "=r"(pair)
        : "r"(word));
  }
#else
  // Exponent and mantissa move into place under the sign; the exponent's bias differs by 8. A NaN
  // code, 0x7f, is the one that carries into bit 14 when its last bit is rounded up: exponent 31.
  constexpr uint32_t kTimes256 = 0x5c005c00;
  const uint32_t codes = __byte_perm(word, 0, kFirst == 0 ? 0x1404 : 0x3424);
  const uint32_t size = (codes & 0x7f007f00) >> 1;
  const uint32_t nan = (size + 0x00800080) & 0x40004000;
  const uint32_t half = (codes & 0x80008000) | size | nan;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(half), "r"(kTimes256));
#endif
  return pair;
}

}  // namespace dosa::gpu
