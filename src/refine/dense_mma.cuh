// SPDX-License-Identifier: Apache-2.0
// Dense scoring with mma.sync: a warp keeps whole queries, 64 columns or, for H = 128, 128.
#pragma once

#include "gpu/stationary_mma.cuh"
#include "refine/chain_mma.cuh"
#include "refine/dense_sm90.cuh"
#include "refine/sinks.cuh"

namespace dosa::refine {

/// Counts on hard keys, per lane: 8 bits for each of the lane's columns and, last, for the keys.
/// A lane meets at most 128 keys of a segment (kSampleUnits units of 256 / 8).
template <int kTiles, int kQueries>
struct HardCounts {
  static constexpr int kPacked = kTiles / 2;  // four columns each
  static constexpr int kPerQuery = kPacked / kQueries;
  uint32_t active[kPacked];
  uint32_t hard;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kPacked; ++i) active[i] = 0;
    hard = 0;
  }

  /// A hard key of `query`: bit 2 tile + e of `bits` says whether the column is active.
  __device__ __forceinline__ void add(int query, uint32_t bits) {
    constexpr uint32_t kSpread = 0x00204081;  // bit i of four to bit 8 i
#pragma unroll
    for (int i = 0; i < kPerQuery; ++i) {
      const int at = query * kPerQuery + i;
      active[at] += (bits >> (4 * at) & 0xfu) * kSpread & 0x01010101u;
    }
    hard += 1u << (8 * query);
  }
};

template <int kHeads_, Sink kSink>
struct DenseEpilogue {
  using Params = DenseParams;
  static constexpr int kHeads = kHeads_;
  static constexpr int kRowColumns = kHeads;
  static constexpr int kTiles = kHeads == 128 ? 16 : 8;
  static constexpr bool kDecoded = kTiles == 8;
  using Chain = TileChain<kHeads, kTiles>;
  static constexpr int kQueries = Chain::kQueries;
  using Share = LaneShare<kQueries>;

  int first_row;
  float weights[2 * kTiles];  // of this lane class's columns
  float floor;                // of the query this lane keeps
  HardCounts<kTiles, kQueries> counts;

  static __device__ __forceinline__ int lane_class() { return static_cast<int>(threadIdx.x) & 3; }

  __device__ __forceinline__ void begin_segment(const Params& params, const gpu::Segment& segment,
                                                int warp) {
    first_row = segment.block * gpu::kBlockRows +
                (segment.column * gpu::StreamConfig::kWarps + warp) * kQueries;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int column = i / 2 * 8 + 2 * lane_class() + i % 2;
      const int row = first_row + column / kHeads;
      const int head = column % kHeads;
      const bool real = row < params.rows.rows && head < params.heads;
      weights[i] = real ? params.weights[row * params.weights_stride + head] : 0.0f;
    }
    floor = params.rows.floor_score[first_row + Share::query(lane_class())];
    if constexpr (kSink == Sink::kSample) counts.clear();
  }

  template <class Path, class Columns>
  __device__ __forceinline__ void score(const Params& params, const gpu::Segment&,
                                        const Columns& columns, const typename Path::Keys& keys,
                                        const gpu::KeyPair& pair) {
    float scores[kQueries][2];
    const int ids[2] = {pair.key, pair.key + 8};
    if constexpr (kSink == Sink::kSample) {
      typename Chain::Active active;
      Chain::template scores<Path>(columns, keys, weights, pair.scale, scores, &active);
      sample(params, active, scores, ids);
    } else {
      Chain::template scores<Path>(columns, keys, weights, pair.scale, scores);
    }
    if constexpr (kSink == Sink::kStore) {
      store_scores(params.scores, params.scores_stride, params.rows.rows, params.num_keys,
                   first_row, scores, ids);
    }
    if constexpr (kSink == Sink::kRecord) {
      record_scores(params.rows, first_row, floor, scores, ids);
    }
  }

  __device__ __forceinline__ void sample(const Params& params, const typename Chain::Active& active,
                                         const float (&scores)[kQueries][2], const int (&ids)[2]) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const int row = first_row + query;
      const int2 window = params.rows.windows[row];
      const float hard_floor = params.hard_floor[row];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool visible = ids[half] >= window.x && ids[half] < window.y;
        if (visible && scores[query][half] >= hard_floor) counts.add(query, active.bits[half]);
      }
    }
  }

  __device__ void end_segment(const Params& params) const {
    if constexpr (kSink == Sink::kSample) {
#pragma unroll
      for (int column = 0; column < 2 * kTiles; ++column) {
        const uint32_t count = counts.active[column / 4] >> (8 * (column % 4)) & 0xffu;
        const int in_warp = column / 2 * 8 + 2 * lane_class() + column % 2;
        const int row = first_row + in_warp / kHeads;
        if (count != 0 && row < params.rows.rows) {
          atomicAdd(params.active + row * (kHeads + 1) + in_warp % kHeads, count);
        }
      }
#pragma unroll
      for (int query = 0; query < kQueries; ++query) {
        const uint32_t count = counts.hard >> (8 * query) & 0xffu;
        const int row = first_row + query;
        if (lane_class() == 0 && count != 0 && row < params.rows.rows) {
          atomicAdd(params.active + row * (kHeads + 1) + kHeads, count);
        }
      }
    }
  }
};

template <class Path, int kHeads>
cudaError_t launch_dense_heads(const DenseParams& params, Sink sink, int multiprocessors,
                               cudaStream_t stream) {
  switch (sink) {
    case Sink::kStore:
      return gpu::launch_stream_mma<Path, DenseEpilogue<kHeads, Sink::kStore>>(
          params, multiprocessors, stream);
    case Sink::kRecord:
      return gpu::launch_stream_mma<Path, DenseEpilogue<kHeads, Sink::kRecord>>(
          params, multiprocessors, stream);
    case Sink::kSample:
      return gpu::launch_stream_mma<Path, DenseEpilogue<kHeads, Sink::kSample>>(
          params, multiprocessors, stream);
  }
  return cudaErrorInvalidValue;
}

template <class Path>
cudaError_t launch_dense_mma(const DenseParams& params, int padded_heads, Sink sink,
                             int multiprocessors, cudaStream_t stream) {
  switch (padded_heads) {
    case 32:
      return launch_dense_heads<Path, 32>(params, sink, multiprocessors, stream);
    case 64:
      return launch_dense_heads<Path, 64>(params, sink, multiprocessors, stream);
    case 128:
      return launch_dense_heads<Path, 128>(params, sink, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::refine
