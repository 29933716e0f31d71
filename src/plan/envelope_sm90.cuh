// SPDX-License-Identifier: Apache-2.0
// What the tensor core's rounding can add: bounds of docs/numerics-sm90.md, section 4, for D = 128.
#pragma once

#include "plan/product_rounding.hpp"
#include "plan/row_work_sm90.cuh"

namespace dosa::plan {

/// Bound of sum_h omega_h |computed - exact dot product| with any key k: constant + per_norm * |k|.
/// All sums are rounded up.
struct Envelope {
  static constexpr float kUnit = 0x1p-13f;
  static constexpr float kLargestKey = 448.0f;  // A(k) of every e4m3 key
  ProductRounding rounding;
  float per_norm = 0.0f;
  float constant = 0.0f;

  /// One vector of weight omega by itself.
  __device__ void add_vector(float omega, float norm, float largest) {
    per_norm = __fmaf_ru(__fmul_ru(rounding.per_norm, omega), norm, per_norm);
    const float products = rounding.per_product * kLargestKey;  // exact
    constant = __fmaf_ru(__fmul_ru(products, omega), largest, constant);
  }

  /// All aggregated heads; the whole CTA calls this, before their rows in `q` are changed.
  __device__ void add_aggregated(RowWork& shared, const float* q) {
    if (rounding.joint) {
      add_jointly(shared, q);
      return;
    }
    for (int i = 0; i < shared.num_aggregated; ++i) {
      const int head = shared.aggregated[i];
      add_vector(-shared.weight[head], shared.norm[head], shared.largest[head]);
    }
  }

  /// S13 with |k_<=t| <= |k|.
  __device__ void add_jointly(RowWork& shared, const float* q) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread & 31;
    const int count = shared.num_aggregated;
    float squares[4] = {};  // J_t^2 of this warp's pairs
    for (int pair = thread / 32; pair < count * count; pair += kThreads / 32) {
      const int g = pair / count;
      const int h = pair % count;
      if (g > h) continue;  // |q_g . q_h| enters twice instead
      const float* const a = q + shared.aggregated[g] * kRowStride;
      const float* const b = q + shared.aggregated[h] * kRowStride;
      const float size =
          __fmul_ru(shared.weight[shared.aggregated[g]], shared.weight[shared.aggregated[h]]);
      const float weight = g == h ? size : 2.0f * size;
      float prefix = 0.0f;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        float dot = __fmul_rn(a[lane + 32 * step], b[lane + 32 * step]);  // exact
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
          dot = __fadd_rn(dot, __shfl_xor_sync(0xffffffffu, dot, other));
        }
        prefix = __fadd_rn(prefix, dot);
        squares[step] = __fmaf_ru(weight, fabsf(prefix), squares[step]);
      }
    }
    float size = 0.0f;
    float products = 0.0f;
    if (thread < count) {
      const int head = shared.aggregated[thread];
      size = __fmul_ru(-shared.weight[head], shared.norm[head]);
      products = __fmul_ru(-shared.weight[head], shared.largest[head]);
    }
    const float sizes = sum_up(shared, size);
    const float largest = sum_up(shared, products);
    // A prefix takes at most 8 roundings: 2^-21 |q_g| |q_h|, and 2^-20 covers it.
    const float lost = __fmul_ru(0x1p-20f, __fmul_ru(sizes, sizes));
    float joint[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float own = lane == 0 ? squares[step] : 0.0f;
      joint[step] = __fsqrt_ru(__fadd_ru(sum_up(shared, own), lost));
    }
    float sum = __fmul_ru(33.0f, __fadd_ru(__fadd_ru(joint[0], joint[1]), joint[2]));
    sum = __fmaf_ru(0.5f, sizes, __fadd_ru(sum, joint[3]));
    per_norm = __fmaf_ru(kUnit, sum, per_norm);
    constant = __fmaf_ru(kUnit * 128.0f * kLargestKey, largest, constant);
  }
};

}  // namespace dosa::plan
