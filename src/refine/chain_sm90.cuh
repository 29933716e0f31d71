// SPDX-License-Identifier: Apache-2.0
// The fp32 arithmetic of the `sm90` score model, from tensor-core dot products to scores.
#pragma once

#include <cuda_runtime.h>

namespace dosa::refine {

/// Scores of the two keys a thread holds, for the kColumns / kHeads queries of one tile of columns.
/// Shapes:   products (kColumns / 2): column 8j + 2c + e of key row r + 8 half at 4j + 2 half + e;
///           weights (kColumns / 4): of column 8j + 2c + e at 2j + e, c = lane % 4
/// Guarantee: the operations and their order are fixed (docs/numerics.md, model sm90): per lane two
///           chains over even and odd heads in which the product of j = 1 is rounded first, their
///           sum times the key scale, then the sum over the four lanes. No contraction happens.
template <int kHeads, int kColumns = 128>
struct ScoreChain {
  static constexpr int kQueries = kColumns / kHeads;
  static constexpr int kSteps = kHeads / 8;
  static constexpr int kProducts = kColumns / 2;
  static constexpr int kWeights = kColumns / 4;
  static_assert(kHeads % 32 == 0 && kQueries * kHeads == kColumns, "whole queries fill a tile");

  static __device__ __forceinline__ float relu(float product) { return fmaxf(product, 0.0f); }

  static __device__ __forceinline__ float lane_part(const float (&products)[kProducts],
                                                    const float (&weights)[kWeights], int query,
                                                    int half, int parity) {
    const int first = query * kSteps;
    const int at = 2 * half + parity;
    float sum = __fmul_rn(relu(products[4 * (first + 1) + at]), weights[2 * (first + 1) + parity]);
    sum = __fmaf_rn(relu(products[4 * first + at]), weights[2 * first + parity], sum);
#pragma unroll
    for (int j = 2; j < kSteps; ++j) {
      sum = __fmaf_rn(relu(products[4 * (first + j) + at]), weights[2 * (first + j) + parity], sum);
    }
    return sum;
  }

  static __device__ __forceinline__ void scores(const float (&products)[kProducts],
                                                const float (&weights)[kWeights],
                                                const float (&scale)[2],
                                                float (&result)[kQueries][2]) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float even = lane_part(products, weights, query, half, 0);
        const float odd = lane_part(products, weights, query, half, 1);
        float part = __fmul_rn(__fadd_rn(even, odd), scale[half]);
        part = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, 1));
        result[query][half] = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, 2));
      }
    }
  }
};

/// Reads the weights of a lane class from shared memory rows of 32 + 4 floats (16-byte aligned;
/// the 4 keep the four classes in different banks).
constexpr int kClassStride = 36;

template <int kCount>
__device__ __forceinline__ void read_class_weights(const float* row, float (&weights)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const float4 four = *reinterpret_cast<const float4*>(row + 4 * i);
    weights[4 * i] = four.x;
    weights[4 * i + 1] = four.y;
    weights[4 * i + 2] = four.z;
    weights[4 * i + 3] = four.w;
  }
}

/// The value of the query and key that this lane keeps after the sums: all four lanes of a quad
/// hold all of them, and each takes its share. kQueries = 4: lane c keeps query c, both keys;
/// 2: query c % 2, key c / 2; 1: lanes 0 and 1 keep keys 0 and 1.
template <int kQueries>
struct LaneShare {
  static constexpr int kClasses = kQueries;
  static constexpr int kValues = kQueries == 4 ? 2 : 1;

  static __device__ __forceinline__ int query(int c) { return c % kQueries; }
  static __device__ __forceinline__ int half(int c, int value) {
    return kQueries == 4 ? value : (kQueries == 2 ? c / 2 : c % 2);
  }
  static __device__ __forceinline__ bool owns(int c) { return kQueries != 1 || c < 2; }

  static __device__ __forceinline__ float pick(const float (&scores)[kQueries][2], int c,
                                               int value) {
    if constexpr (kQueries == 4) {
      const float low = (c & 1) != 0 ? scores[1][value] : scores[0][value];
      const float high = (c & 1) != 0 ? scores[3][value] : scores[2][value];
      return (c & 2) != 0 ? high : low;
    } else if constexpr (kQueries == 2) {
      const float first = (c & 1) != 0 ? scores[1][0] : scores[0][0];
      const float second = (c & 1) != 0 ? scores[1][1] : scores[0][1];
      return (c & 2) != 0 ? second : first;
    } else {
      return (c & 1) != 0 ? scores[0][1] : scores[0][0];
    }
  }
};

}  // namespace dosa::refine
