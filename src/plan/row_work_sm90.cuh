// SPDX-License-Identifier: Apache-2.0
// What the CTA that makes one row's certificate shares, and its sums.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "plan/product_rounding.hpp"

namespace dosa::plan {

constexpr int kThreads = 128;  // of the CTA: one per coordinate or per head
constexpr int kDim = 128;
constexpr int kRowStride = 132;  // floats: eight heads by four parts fall into 32 banks

struct RowWork {
  float weight[kDim];  // by head
  float norm[kDim];    // |q_h|, rounded up
  float power[kDim];   // X(q_h): A(q_h) = max(2^-6, max_d |q_hd|) cut to a power of two
  float error[kDim];   // of the computed products of q_h, per n(k)
  float priority[kDim];
  float folded[kDim];  // by slot: w~
  int role[kDim];
  int slot_head[kDim];  // head of a retained slot
  int projected[kDim];  // heads in P
  uint8_t aggregate[2][kDim];
  float partial[4];
  float best_gain[4];
  int best_slot[4];
  float best_dot[4];
  int aggregated[kDim];  // heads in the aggregate
  int num_aggregated;
  int positives;
  int retained;
  int num_projected;
  int invalid;
};

__device__ inline float warp_sum_up(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = __fadd_ru(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

/// Sum over the CTA, rounded up, known to all threads.
__device__ inline float sum_up(RowWork& shared, float value) {
  const int thread = static_cast<int>(threadIdx.x);
  value = warp_sum_up(value);
  __syncthreads();
  if (thread % 32 == 0) shared.partial[thread / 32] = value;
  __syncthreads();
  return __fadd_ru(__fadd_ru(shared.partial[0], shared.partial[1]),
                   __fadd_ru(shared.partial[2], shared.partial[3]));
}

__device__ inline float max_all(RowWork& shared, float value) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  __syncthreads();
  if (thread % 32 == 0) shared.partial[thread / 32] = value;
  __syncthreads();
  return fmaxf(fmaxf(shared.partial[0], shared.partial[1]),
               fmaxf(shared.partial[2], shared.partial[3]));
}

__device__ inline float cut_to_power(float normal) {
  return __int_as_float(__float_as_int(normal) & 0x7f800000);
}

/// Bound of |computed - exact| / n(k) of the products of a vector a: `square` is |a|^2, `weighted`
/// W(a)^2 and `largest` A(a) = max(2^-6, max_d |a_d|), all rounded up.
__device__ inline float product_error(const ProductRounding& rounding, float square, float weighted,
                                      float largest) {
  const float power = rounding.sm90 ? cut_to_power(largest) : largest;
  const float sums = __fmaf_ru(rounding.per_prefix, __fsqrt_ru(weighted),
                               __fmul_ru(rounding.per_norm, __fsqrt_ru(square)));
  return __fmaf_ru(rounding.per_product, power, sums);
}

/// Factor of W^2 for the coordinates of a k-step.
__device__ constexpr float step_weight(int step) {
  return static_cast<float>((3 - step) * (3 - step));
}

__device__ inline float decode(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

}  // namespace dosa::plan
