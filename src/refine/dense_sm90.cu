// SPDX-License-Identifier: Apache-2.0
// Dense scoring: A = 64 keys, B = 128 / H queries of H heads, scores finished in the epilogue.
#include "refine/dense_sm90.cuh"

#include "gpu/stationary_sm90.cuh"
#include "refine/chain_sm90.cuh"
#include "refine/sinks.cuh"

namespace dosa::refine {
namespace {

template <int kHeads_, Sink kSink_>
struct Config {
  static constexpr int kHeads = kHeads_;
  static constexpr Sink kSink = kSink_;
  static constexpr int kTileQueries = 128 / kHeads;
  static constexpr int kColumnQueries =
      kTileQueries * gpu::StationaryConfig::kColumnTiles;  // queries of one column tile
  static constexpr int kColumns = gpu::kBlockRows / kColumnQueries;
  static_assert(kColumns * kColumnQueries == gpu::kBlockRows, "blocks are whole column tiles");
};

template <class C>
struct Epilogue {
  using Params = DenseParams;
  static constexpr int kTileColumns = 128;
  using Chain = ScoreChain<C::kHeads>;
  using Share = LaneShare<C::kTileQueries>;
  struct Shared {};

  int first_row;       // of the tile's queries
  float weights[32];   // of this lane class's columns
  float floor;         // of the query this lane keeps
  uint32_t packed[8];  // kSample: active counts, four columns of 8 bits each
  uint32_t hard;       // kSample: hard keys, up to four queries of 8 bits each

  static __device__ __forceinline__ int lane_class() { return static_cast<int>(threadIdx.x) & 3; }

  __device__ __forceinline__ void begin_segment(const Params& params, Shared&,
                                                const gpu::Segment& segment, int tile) {
    first_row = segment.block * gpu::kBlockRows + segment.column * C::kColumnQueries +
                tile * C::kTileQueries;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int column = i / 2 * 8 + 2 * lane_class() + i % 2;
      const int row = first_row + column / C::kHeads;
      const int head = column % C::kHeads;
      const bool real = row < params.rows.rows && head < params.heads;
      weights[i] = real ? params.weights[row * params.weights_stride + head] : 0.0f;
    }
    floor = params.rows.floor_score[first_row + Share::query(lane_class())];
    if constexpr (C::kSink == Sink::kSample) {
#pragma unroll
      for (int i = 0; i < 8; ++i) packed[i] = 0;
      hard = 0;
    }
  }

  __device__ __forceinline__ void finish(const Params& params, const Shared&, const gpu::Segment&,
                                         const float (&products)[64], const gpu::KeyPair& keys) {
    float scores[C::kTileQueries][2];
    Chain::scores(products, weights, keys.scale, scores);
    const int ids[2] = {keys.key, keys.key + 8};
    if constexpr (C::kSink == Sink::kStore) {
      store_scores(params.scores, params.scores_stride, params.rows.rows, params.num_keys,
                   first_row, scores, ids);
    } else if constexpr (C::kSink == Sink::kRecord) {
      record_scores(params.rows, first_row, floor, scores, ids);
    } else {
      sample(params, products, scores, keys);
    }
  }

  __device__ __forceinline__ void sample(const Params& params, const float (&products)[64],
                                         const float (&scores)[C::kTileQueries][2],
                                         const gpu::KeyPair& keys) {
#pragma unroll
    for (int query = 0; query < C::kTileQueries; ++query) {
      const int row = first_row + query;
      const int2 window = params.rows.windows[row];
      const float hard_floor = params.hard_floor[row];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = keys.key + 8 * half;
        const bool is_hard = key >= window.x && key < window.y && scores[query][half] >= hard_floor;
        hard += is_hard ? 1u << (8 * query) : 0u;
#pragma unroll
        for (int j = query * Chain::kSteps; j < (query + 1) * Chain::kSteps; ++j) {
#pragma unroll
          for (int parity = 0; parity < 2; ++parity) {
            const bool active = is_hard && products[4 * j + 2 * half + parity] > 0.0f;
            const int column = 2 * j + parity;
            packed[column / 4] += active ? 1u << (8 * (column % 4)) : 0u;
          }
        }
      }
    }
  }

  __device__ void end_segment(const Params& params) const {
    if constexpr (C::kSink == Sink::kSample) {
      const int c = lane_class();
#pragma unroll
      for (int column = 0; column < 32; ++column) {
        const uint32_t count = packed[column / 4] >> (8 * (column % 4)) & 0xffu;
        const int in_tile = column / 2 * 8 + 2 * c + column % 2;
        const int row = first_row + in_tile / C::kHeads;
        if (count != 0 && row < params.rows.rows) {
          atomicAdd(params.active + row * (C::kHeads + 1) + in_tile % C::kHeads, count);
        }
      }
#pragma unroll
      for (int query = 0; query < C::kTileQueries; ++query) {
        const uint32_t count = hard >> (8 * query) & 0xffu;
        const int row = first_row + query;
        if (c == 0 && count != 0 && row < params.rows.rows) {
          atomicAdd(params.active + row * (C::kHeads + 1) + C::kHeads, count);
        }
      }
    }
  }
};

template <int kHeads>
cudaError_t launch_heads(const DenseParams& params, Sink sink, int multiprocessors,
                         cudaStream_t stream) {
  DenseParams launch = params;
  launch.round.columns = Config<kHeads, Sink::kStore>::kColumns;
  switch (sink) {
    case Sink::kStore:
      return gpu::launch_stationary_sm90<Epilogue<Config<kHeads, Sink::kStore>>>(
          launch, multiprocessors, stream);
    case Sink::kRecord:
      return gpu::launch_stationary_sm90<Epilogue<Config<kHeads, Sink::kRecord>>>(
          launch, multiprocessors, stream);
    case Sink::kSample:
      return gpu::launch_stationary_sm90<Epilogue<Config<kHeads, Sink::kSample>>>(
          launch, multiprocessors, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_dense_sm90(const DenseParams& params, int padded_heads, Sink sink,
                              int multiprocessors, cudaStream_t stream) {
  switch (padded_heads) {
    case 32:
      return launch_heads<32>(params, sink, multiprocessors, stream);
    case 64:
      return launch_heads<64>(params, sink, multiprocessors, stream);
    case 128:
      return launch_heads<128>(params, sink, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::refine
