// SPDX-License-Identifier: Apache-2.0
// The fp32 arithmetic of the `mma_*` score models: the chain of `sm90` (docs/numerics.md), taken a
// few tiles of columns at a time.
#pragma once

#include <cuda_runtime.h>

#include "gpu/operands_mma.cuh"
#include "refine/chain_sm90.cuh"

namespace dosa::refine {

/// Scores of the two keys a thread holds, for the queries of kTiles tiles of 8 columns.
/// Guarantee: for each query the operations and their order are those of ScoreChain
template <int kHeads_, int kTiles_>
struct TileChain {
  static constexpr int kHeads = kHeads_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kSteps = kHeads / 8;         // tiles of a query
  static constexpr int kQueries = kTiles / kSteps;  // of the warp
  // Tiles whose products live at once: of 32 heads, one query's sums are made while the next one's
  // products are.
  static constexpr int kChunk = kHeads == 64 && kTiles == 8 ? 8 : 4;
  static_assert(kQueries * kSteps == kTiles, "whole queries");
  static_assert(kChunk % 4 == 0 && kSteps % 4 == 0, "a chain starts with two tiles of one chunk");

  /// Which of the warp's 8 kTiles columns have a positive product, for each of the two keys: bit
  /// 2 tile + e. Kept for statistics only.
  struct Active {
    uint32_t bits[2] = {0, 0};
  };

  static __device__ __forceinline__ float relu(float product) { return fmaxf(product, 0.0f); }

  /// Continues the chains of tiles kFirst .. kFirst + kChunk - 1.
  template <int kFirst>
  static __device__ __forceinline__ void add(const float (&products)[kChunk][4],
                                             const float (&weights)[2 * kTiles],
                                             float (&sums)[kQueries][4]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int tile = kFirst + i;
      const int step = tile % kSteps;
      float(&sum)[4] = sums[tile / kSteps];
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const float weight = weights[2 * tile + at % 2];
        if (step == 0) {  // the product of the second tile is rounded first
          const float second = weights[2 * (tile + 1) + at % 2];
          sum[at] = __fmul_rn(relu(products[i + 1][at]), second);
        }
        if (step != 1) sum[at] = __fmaf_rn(relu(products[i][at]), weight, sum[at]);
      }
    }
  }

  template <int kFirst, class Path, class Columns>
  static __device__ __forceinline__ void run(const Columns& columns,
                                             const typename Path::Keys& keys,
                                             const float (&weights)[2 * kTiles],
                                             float (&sums)[kQueries][4], Active* active) {
    if constexpr (kFirst < kTiles) {
      float products[kChunk][4];
      columns.template multiply<kFirst, kChunk>(keys, products);
      add<kFirst>(products, weights, sums);
      if (active != nullptr) {
#pragma unroll
        for (int i = 0; i < kChunk * 4; ++i) {
          const bool positive = products[i / 4][i % 4] > 0.0f;
          const uint32_t bit = 1u << (2 * (kFirst + i / 4) + i % 2);
          active->bits[i % 4 / 2] |= positive ? bit : 0u;
        }
      }
      run<kFirst + kChunk, Path>(columns, keys, weights, sums, active);
    }
  }

  /// weights: of column 8 tile + 2 c + e at 2 tile + e, c = lane % 4.
  template <class Path, class Columns>
  static __device__ __forceinline__ void scores(
      const Columns& columns, const typename Path::Keys& keys, const float (&weights)[2 * kTiles],
      const float (&scale)[2], float (&result)[kQueries][2], Active* active = nullptr) {
    float sums[kQueries][4];
    run<0, Path>(columns, keys, weights, sums, active);
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const sum = sums[query] + 2 * half;
        float part = __fmul_rn(__fadd_rn(sum[0], sum[1]), scale[half]);
        part = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, 1));
        result[query][half] = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, 2));
      }
    }
  }
};

}  // namespace dosa::refine
