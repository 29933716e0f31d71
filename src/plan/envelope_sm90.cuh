// SPDX-License-Identifier: Apache-2.0
// What the tensor core's rounding can add: bounds of docs/numerics-sm90.md, section 4, for D = 128,
// as multiples of n(k). All sums are rounded up.
#pragma once

#include "numeric/sm90_bridge.hpp"
#include "plan/product_rounding.hpp"
#include "plan/row_work_sm90.cuh"

namespace dosa::plan {

constexpr float kUnit = 0x1p-13f;            // what a term loses, of the largest one
constexpr float kPerPrefix = kUnit * 33.0f;  // per partial sum: 32 products and the sum itself
constexpr float kShare = kPerPrefix * kSm90BridgeShare + kUnit;  // S13, S15: of the product itself

/// (33 J + 1/2 S) |k| + 128 X(k) P of S13 and S15 per n(k), from J^2, the sum S of the sizes and
/// the sum P of the X(q).
__device__ inline float bridge_error(float squares, float sizes, float powers) {
  constexpr float kLost = 0x1p-16f;  // by sm90_bridge_sum and the dot products, of S^2
  const float joint = __fsqrt_ru(__fmaf_ru(__fmul_ru(kLost, sizes), sizes, squares));
  const float sums = __fmaf_ru(kPerPrefix, joint, __fmul_ru(0.5f * kUnit, sizes));
  return __fmaf_ru(kRoundingSm90.per_product, powers, sums);
}

/// S13 per n(k): the aggregated heads jointly, but for the share of their dot products that the
/// caller takes off; the whole CTA calls this, before their rows in `q` are changed.
__device__ inline float aggregated_jointly(RowWork& shared, const float* q) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int count = shared.num_aggregated;
  float squares = 0.0f;  // of this warp's pairs
  for (int pair = thread / 32; pair < count * count; pair += kThreads / 32) {
    const int g = pair / count;
    const int h = pair % count;
    if (g > h) continue;  // the pair enters twice instead
    const float* const a = q + shared.aggregated[g] * kRowStride;
    const float* const b = q + shared.aggregated[h] * kRowStride;
    const float size =
        __fmul_ru(shared.weight[shared.aggregated[g]], shared.weight[shared.aggregated[h]]);
    float prefix[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      float dot = __fmul_rn(a[lane + 32 * step], b[lane + 32 * step]);  // exact
#pragma unroll
      for (int other = 16; other > 0; other /= 2) {
        dot = __fadd_rn(dot, __shfl_xor_sync(0xffffffffu, dot, other));
      }
      prefix[step] = step == 0 ? dot : __fadd_rn(prefix[step - 1], dot);
    }
    squares = __fmaf_ru(g == h ? size : 2.0f * size, sm90_bridge_sum(prefix), squares);
  }
  float size = 0.0f;
  float power = 0.0f;
  if (thread < count) {
    const int head = shared.aggregated[thread];
    size = __fmul_ru(-shared.weight[head], shared.norm[head]);
    power = __fmul_ru(-shared.weight[head], shared.power[head]);
  }
  const float sizes = sum_up(shared, size);
  const float powers = sum_up(shared, power);
  return bridge_error(sum_up(shared, lane == 0 ? squares : 0.0f), sizes, powers);
}

/// All aggregated heads, one by one.
__device__ inline float aggregated_singly(const RowWork& shared) {
  float error = 0.0f;
  for (int i = 0; i < shared.num_aggregated; ++i) {
    const int head = shared.aggregated[i];
    error = __fmaf_ru(-shared.weight[head], shared.error[head], error);
  }
  return error;
}

}  // namespace dosa::plan
