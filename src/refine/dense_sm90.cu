// SPDX-License-Identifier: Apache-2.0
// Dense scoring: A = 64 keys, B = 128 / H queries of H heads, scores finished in the epilogue.
#include "refine/dense_sm90.cuh"

#include "refine/chain_sm90.cuh"

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

struct SharedRows {
  alignas(16) float weights[4][4][kClassStride];  // (tile, lane class, column)
  uint64_t floor_record[16];
  float floor_score[16];  // kSample: the hard floor
  int2 window[16];
};

template <class C>
struct Epilogue {
  using Params = DenseParams;
  using Shared = SharedRows;
  using Chain = ScoreChain<C::kHeads>;
  using Share = LaneShare<C::kTileQueries>;
  static constexpr int kThreads = gpu::StationaryConfig::kConsumerThreads;

  int first_row;        // of the column tile
  uint32_t packed[32];  // kSample: active counts, four columns of 8 bits each
  uint32_t hard[4];     // kSample: hard keys, up to four queries of 8 bits each

  __device__ void load_rows(const Params& params, Shared& shared, const gpu::Segment& segment,
                            int thread) {
    first_row = segment.block * gpu::kBlockRows + segment.column * C::kColumnQueries;
    for (int column = thread; column < 512; column += kThreads) {
      const int row = first_row + column / C::kHeads;
      const int head = column % C::kHeads;
      const int in_tile = column % 128;
      const int slot = in_tile / 8 * 2 + in_tile % 2;
      const bool real = row < params.rows.rows && head < params.heads;
      shared.weights[column / 128][in_tile % 8 / 2][slot] =
          real ? params.weights[row * params.weights_stride + head] : 0.0f;
    }
    if (thread < C::kColumnQueries) {
      const int row = first_row + thread;
      shared.window[thread] = params.rows.windows[row];
      shared.floor_score[thread] =
          C::kSink == Sink::kSample ? params.hard_floor[row] : params.rows.floor_score[row];
      shared.floor_record[thread] = params.rows.floor_record[row];
    }
    if constexpr (C::kSink == Sink::kSample) {
#pragma unroll
      for (int i = 0; i < 32; ++i) packed[i] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) hard[i] = 0;
    }
  }

  template <int kTile>
  __device__ __forceinline__ void tile(const Params& params, Shared& shared,
                                       const float (&products)[64], const gpu::KeyPair& keys) {
    const int c = static_cast<int>(threadIdx.x) & 3;
    float weights[32];
    read_class_weights(shared.weights[kTile][c], weights);
    float scores[C::kTileQueries][2];
    Chain::scores(products, weights, keys.scale, scores);
    if constexpr (C::kSink == Sink::kStore) {
      store<kTile>(params, scores, keys, c);
    } else if constexpr (C::kSink == Sink::kRecord) {
      record<kTile>(params, shared, scores, keys, c);
    } else {
      sample<kTile>(shared, products, scores, keys);
    }
  }

  template <int kTile>
  __device__ __forceinline__ void store(const Params& params,
                                        const float (&scores)[C::kTileQueries][2],
                                        const gpu::KeyPair& keys, int c) {
    const int row = first_row + kTile * C::kTileQueries + Share::query(c);
    if (row >= params.rows.rows || !Share::owns(c)) return;
    float* const out = params.scores + row * params.scores_stride;
#pragma unroll
    for (int value = 0; value < Share::kValues; ++value) {
      const int key = keys.key + 8 * Share::half(c, value);
      if (key < params.num_keys) out[key] = Share::pick(scores, c, value);
    }
  }

  template <int kTile>
  __device__ __forceinline__ void record(const Params& params, const Shared& shared,
                                         const float (&scores)[C::kTileQueries][2],
                                         const gpu::KeyPair& keys, int c) {
    const int query = kTile * C::kTileQueries + Share::query(c);
    const float floor = shared.floor_score[query];
    float value[2];
    bool keep[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      value[i] = i < Share::kValues ? Share::pick(scores, c, i) : 0.0f;
      keep[i] = i < Share::kValues && Share::owns(c) && !(value[i] < floor);
    }
    if (!__any_sync(0xffffffffu, keep[0] || keep[1])) return;
    const int2 window = shared.window[query];
    const uint64_t floor_record = shared.floor_record[query];
    uint64_t records[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = keys.key + 8 * Share::half(c, i);
      records[i] = numeric::make_record(value[i], key);
      keep[i] = keep[i] && key >= window.x && key < window.y && records[i] > floor_record;
    }
    numeric::append_records<Share::kClasses>(params.rows, first_row + query, keep[0], records[0],
                                             keep[1], records[1]);
  }

  template <int kTile>
  __device__ __forceinline__ void sample(const Shared& shared, const float (&products)[64],
                                         const float (&scores)[C::kTileQueries][2],
                                         const gpu::KeyPair& keys) {
#pragma unroll
    for (int query = 0; query < C::kTileQueries; ++query) {
      const int in_column = kTile * C::kTileQueries + query;
      const int2 window = shared.window[in_column];
      const float floor = shared.floor_score[in_column];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = keys.key + 8 * half;
        const bool is_hard = key >= window.x && key < window.y && scores[query][half] >= floor;
        hard[kTile] += is_hard ? 1u << (8 * query) : 0u;
#pragma unroll
        for (int j = query * Chain::kSteps; j < (query + 1) * Chain::kSteps; ++j) {
#pragma unroll
          for (int parity = 0; parity < 2; ++parity) {
            const bool active = is_hard && products[4 * j + 2 * half + parity] > 0.0f;
            const int column = 2 * j + parity;
            packed[kTile * 8 + column / 4] += active ? 1u << (8 * (column % 4)) : 0u;
          }
        }
      }
    }
  }

  __device__ void finish(const Params&, Shared&, const gpu::Segment&, const gpu::KeyPair&) {}

  __device__ void end_segment(const Params& params, Shared&, const gpu::Segment&) {
    if constexpr (C::kSink == Sink::kSample) {
      const int c = static_cast<int>(threadIdx.x) & 3;
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
        for (int column = 0; column < 32; ++column) {
          const uint32_t count = packed[tile * 8 + column / 4] >> (8 * (column % 4)) & 0xffu;
          const int in_tile = column / 2 * 8 + 2 * c + column % 2;
          const int row = first_row + tile * C::kTileQueries + in_tile / C::kHeads;
          if (count != 0 && row < params.rows.rows) {
            atomicAdd(params.active + row * (C::kHeads + 1) + in_tile % C::kHeads, count);
          }
        }
#pragma unroll
        for (int query = 0; query < C::kTileQueries; ++query) {
          const uint32_t count = hard[tile] >> (8 * query) & 0xffu;
          const int row = first_row + tile * C::kTileQueries + query;
          if (c == 0 && count != 0 && row < params.rows.rows) {
            atomicAdd(params.active + row * (C::kHeads + 1) + C::kHeads, count);
          }
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
