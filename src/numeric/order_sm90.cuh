// SPDX-License-Identifier: Apache-2.0
// The order of scores as unsigned integers, and the records made of it.
#pragma once

#include <cstdint>

namespace dosa::numeric {

/// Monotone code of a score: NaN 0, then -Inf .. +Inf; -0 and +0 share one code.
__host__ __device__ __forceinline__ uint32_t order_code(float score) {
  uint32_t bits = 0;
#ifdef __CUDA_ARCH__
  bits = __float_as_uint(score);
#else
  __builtin_memcpy(&bits, &score, sizeof bits);
#endif
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
  if (bits == 0x80000000u) bits = 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The score of a code; NaN for 0.
__host__ __device__ __forceinline__ float score_of_code(uint32_t code) {
  uint32_t bits = 0x7fffffffu;
  if (code != 0) bits = (code & 0x80000000u) != 0 ? code & 0x7fffffffu : ~code;
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float score = 0;
  __builtin_memcpy(&score, &bits, sizeof score);
  return score;
#endif
}

/// A record ranks by score, then by lower id; records of one row are distinct and never 0.
__host__ __device__ __forceinline__ uint64_t make_record(float score, int key) {
  return static_cast<uint64_t>(order_code(score)) << 32 | static_cast<uint32_t>(~key);
}

__host__ __device__ __forceinline__ int record_key(uint64_t record) {
  return static_cast<int>(~static_cast<uint32_t>(record));
}

__host__ __device__ __forceinline__ float record_score(uint64_t record) {
  return score_of_code(static_cast<uint32_t>(record >> 32));
}

#ifdef __CUDACC__

/// The threshold of screening: below the score floor by more than the last multiplication, the
/// reference's own and any final underflow can hide (N11). A key of this score is rejected only by
/// a bound below this.
__device__ __forceinline__ float bound_floor_of(float floor) {
  constexpr float kRelative = 0x1p-21f;
  constexpr float kAbsolute = 0x1p-140f;
  if (floor != floor) return -__int_as_float(0x7f800000);
  floor = fminf(floor, 0x1.fffffep+127f);  // a bound may be finite where the score overflowed
  return __fsub_rd(__fsub_rd(floor, __fmul_ru(fabsf(floor), kRelative)), kAbsolute);
}

#endif

}  // namespace dosa::numeric
