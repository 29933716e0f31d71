// SPDX-License-Identifier: Apache-2.0
// The kernels on mma.sync without their sums: what streaming keys past columns takes by itself.
#pragma once

#include "gpu/stationary_mma.cuh"

namespace dosa::bench {

struct ProductsAloneParams : gpu::StationaryParams {
  float* out;  // written where a sum is huge: never, but the compiler cannot know
};

template <int kTiles_>
struct ProductsAlone {
  using Params = ProductsAloneParams;
  static constexpr int kRowColumns = 2 * kTiles_;
  static constexpr int kTiles = kTiles_;
  static constexpr bool kDecoded = kTiles == 8;
  static constexpr int kChunk = kDecoded ? 8 : 4;

  float most;

  __device__ __forceinline__ void begin_segment(const Params&, const gpu::Segment&, int) {
    most = 0.0f;
  }

  /// One value of each tile is used: the others are made all the same.
  template <int kFirst, class Path, class Columns>
  __device__ __forceinline__ void run(const Columns& columns, const typename Path::Keys& keys) {
    if constexpr (kFirst < kTiles) {
      float products[kChunk][4];
      columns.template multiply<kFirst, kChunk>(keys, products);
#pragma unroll
      for (int tile = 0; tile < kChunk; ++tile) most = fmaxf(most, products[tile][0]);
      run<kFirst + kChunk, Path>(columns, keys);
    }
  }

  template <class Path, class Columns>
  __device__ __forceinline__ void score(const Params&, const gpu::Segment&, const Columns& columns,
                                        const typename Path::Keys& keys, const gpu::KeyPair&) {
    run<0, Path>(columns, keys);
  }

  __device__ void end_segment(const Params& params) const {
    if (most > 3e38f) *params.out = most;
  }
};

}  // namespace dosa::bench
