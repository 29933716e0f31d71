// SPDX-License-Identifier: Apache-2.0
// Recovery with mma.sync: a CTA takes a group of 128 / H rows through keys in order of ids and,
// where it takes them through all, reduces its records whenever the next 2,048 keys might not fit.
#pragma once

#include "gpu/operands_mma.cuh"
#include "refine/chain_mma.cuh"
#include "refine/sinks.cuh"
#include "select/radix_sm90.cuh"
#include "select/recover_passes_sm90.cuh"
#include "select/recover_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {

struct RecoverMmaConfig {
  static constexpr int kThreads = 256;
  static constexpr int kTiles = 16;  // 128 columns, in every warp
  static constexpr int kStep = 128;  // keys: 16 for each warp
  static constexpr int kBuffers = 2;
  static constexpr int kCheck = 16;  // steps between two looks at the counts
};

struct RecoverMmaShared {
  alignas(128) uint8_t keys[RecoverMmaConfig::kBuffers][RecoverMmaConfig::kStep * 128];  // swizzled
  uint64_t kept[kMaxTopk];
  RadixShared radix;
  int2 window[4];  // of the group's rows; empty where the row is not recovered
};

/// The windows of the group's rows that are still to be scored.
template <int kQueries>
__device__ void load_windows(const RecoverParams& params, RecoverMmaShared& shared, int group) {
  const int query = static_cast<int>(threadIdx.x);
  if (query < kQueries) {
    const int row = group * kQueries + query;
    const bool open = is_lost(params.rows, row) &&
                      (params.whole || __ldcg(params.rows.counts + row) <=
                                           static_cast<uint32_t>(params.rows.capacity));
    shared.window[query] = open ? params.rows.windows[row] : make_int2(0, 0);
  }
  __syncthreads();
}

/// Brings a row back to its K best records; the whole CTA calls this.
__device__ inline void shrink_row(const RecoverParams& params, RecoverMmaShared& shared, int row,
                                  int count) {
  constexpr int kThreads = RecoverMmaConfig::kThreads;
  uint64_t* const records = params.rows.records + static_cast<int64_t>(row) * params.rows.capacity;
  const uint64_t bound = rank_bound<kThreads>(shared.radix, records, count, params.topk);
  const uint64_t least = keep_records<kThreads>(shared.radix, records, count, bound, shared.kept);
  for (int i = static_cast<int>(threadIdx.x); i < params.topk; i += kThreads) {
    records[i] = shared.kept[i];
  }
  if (threadIdx.x == 0) {
    params.rows.counts[row] = static_cast<uint32_t>(params.topk);
    params.rows.floor_record[row] = least;
    __threadfence();
  }
  __syncthreads();
}

/// Starts the copies of keys first .. first + 127.
__device__ inline void copy_keys(const gpu::CodeRows& rows, RecoverMmaShared& shared, int buffer,
                                 int64_t first) {
  const uint32_t target = gpu::shared_address(shared.keys[buffer]);
  for (int i = static_cast<int>(threadIdx.x); i < RecoverMmaConfig::kStep * 8;
       i += RecoverMmaConfig::kThreads) {
    const int row = i / 8;
    const int piece = i % 8;
    const bool valid = first + row < rows.rows && piece * 16 < rows.width;
    gpu::copy_async_16(target + row * 128 + (piece ^ (row & 7)) * 16,
                       rows.codes + (valid ? (first + row) * rows.stride + piece * 16 : 0), valid);
  }
  gpu::copy_async_commit();
}

template <class Path, int kHeads>
struct RecoverGroup {
  static constexpr int kQueries = 128 / kHeads;
  using Config = RecoverMmaConfig;
  using Chain = refine::TileChain<kHeads, Config::kTiles>;
  using Share = refine::LaneShare<kQueries>;
  gpu::Columns<Path, Config::kTiles, false> columns;
  float weights[2 * Config::kTiles];

  __device__ __forceinline__ void load(const RecoverParams& params, int group) {
    columns.load(params.query_rows, static_cast<int64_t>(group) * 128);
#pragma unroll
    for (int i = 0; i < 2 * Config::kTiles; ++i) {
      const int column = i / 2 * 8 + 2 * (static_cast<int>(threadIdx.x) & 3) + i % 2;
      const int row = group * kQueries + column / kHeads;
      const int head = column % kHeads;
      const bool real = row < params.rows.rows && head < params.heads;
      weights[i] = real ? params.weights[row * params.weights_stride + head] : 0.0f;
    }
  }

  /// Scores this warp's 16 keys of a step and records what is above the rows' floors.
  __device__ __forceinline__ void score(const RecoverParams& params, const RecoverMmaShared& shared,
                                        int buffer, int group, int first_key) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    uint32_t words[2][gpu::kWordsPerRow];
    gpu::load_key_words(gpu::shared_address(shared.keys[buffer]) + warp * 16 * 128, words);
    const int ids[2] = {first_key + warp * 16 + lane / 4, first_key + warp * 16 + lane / 4 + 8};
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[half] = ids[half] < params.num_keys ? params.k_scale[ids[half]] : 0.0f;
    }
    float scores[kQueries][2];
    Chain::template scores<Path>(columns, Path::decode(words), weights, scales, scores);
    const int query = Share::query(lane & 3);
    const int2 window = shared.window[query];
    const bool open = window.x < window.y;
    const uint64_t floor_record = open ? params.rows.floor_record[group * kQueries + query] : 0;
    const float floor = numeric::record_score(floor_record);
    refine::record_scores(params.rows, group * kQueries, floor, scores, ids, open);
  }
};

/// Scores the keys of [low, high) that a lost row of the group sees.
template <class Path, int kHeads>
__device__ void recover_group(const RecoverParams& params, RecoverMmaShared& shared, int group,
                              int low, int high) {
  using Config = RecoverMmaConfig;
  using Group = RecoverGroup<Path, kHeads>;
  load_windows<Group::kQueries>(params, shared, group);
  int first_seen = high;
  int last_seen = low;
  for (int query = 0; query < Group::kQueries; ++query) {
    const int2 window = shared.window[query];
    if (window.x >= window.y) continue;
    first_seen = window.x < first_seen ? window.x : first_seen;
    last_seen = window.y > last_seen ? window.y : last_seen;
  }
  low = first_seen > low ? first_seen : low;
  high = last_seen < high ? last_seen : high;
  if (low >= high) return;
  low = low / Config::kStep * Config::kStep;
  Group columns;
  columns.load(params, group);
  copy_keys(params.key_rows, shared, 0, low);
  int step = 0;
  for (int first = low; first < high; first += Config::kStep, ++step) {
    const int buffer = step % Config::kBuffers;
    gpu::copy_async_wait<0>();
    __syncthreads();  // these keys are there for all, and all are done with the ones before
    if (first + Config::kStep < high) {
      copy_keys(params.key_rows, shared, buffer ^ 1, int64_t{first} + Config::kStep);
    }
    columns.score(params, shared, buffer, group, first);
    if (!params.whole) continue;
    const bool last = first + Config::kStep >= high;
    if (!last && step % Config::kCheck != Config::kCheck - 1) continue;
    __threadfence();
    __syncthreads();
    for (int query = 0; query < Group::kQueries; ++query) {
      if (shared.window[query].x >= shared.window[query].y) continue;
      const int row = group * Group::kQueries + query;
      const int count = static_cast<int>(__ldcg(params.rows.counts + row));
      __syncthreads();  // all have read it before it changes
      if (count > params.rows.capacity - Config::kStep * Config::kCheck) {
        shrink_row(params, shared, row, count);
      }
    }
  }
}

template <class Path, int kHeads>
__global__ void __launch_bounds__(RecoverMmaConfig::kThreads, 1)
    recover_mma_kernel(const __grid_constant__ RecoverParams params) {
  constexpr int kSlice = RecoverMmaConfig::kStep * RecoverMmaConfig::kCheck;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<RecoverMmaShared*>(shared_bytes);
  RecoverShare share(params, kSlice);
  while (share.next(params, kSlice)) {
    recover_group<Path, kHeads>(params, shared, share.group, share.low, share.high);
    __syncthreads();
  }
}

template <class Path, int kHeads>
cudaError_t score_recover_heads(const RecoverParams& params, int multiprocessors,
                                cudaStream_t stream) {
  constexpr int kBytes = sizeof(RecoverMmaShared);
  static_assert(kBytes <= 99 * 1024, "fits every card");
  const auto kernel = recover_mma_kernel<Path, kHeads>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors, RecoverMmaConfig::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <class Path, int kHeads>
cudaError_t launch_recover_heads(const RecoverParams& params, int multiprocessors,
                                 cudaStream_t stream) {
  return run_recover_passes(params, 128 / kHeads, score_recover_heads<Path, kHeads>,
                            multiprocessors, stream);
}

template <class Path>
cudaError_t launch_recover_mma(const RecoverParams& params, int padded_heads, int multiprocessors,
                               cudaStream_t stream) {
  switch (padded_heads) {
    case 32:
      return launch_recover_heads<Path, 32>(params, multiprocessors, stream);
    case 64:
      return launch_recover_heads<Path, 64>(params, multiprocessors, stream);
    case 128:
      return launch_recover_heads<Path, 128>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::select
