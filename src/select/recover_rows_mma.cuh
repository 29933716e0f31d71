// SPDX-License-Identifier: Apache-2.0
// Recovery with mma.sync: one CTA takes a group of 128 / H rows through all keys in order of ids
// and reduces its records whenever the next 2,048 keys might not fit.
#pragma once

#include "gpu/operands_mma.cuh"
#include "refine/chain_mma.cuh"
#include "refine/sinks.cuh"
#include "select/radix_sm90.cuh"
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

/// Opens the flagged rows of a group again, each with the floor it had when it was closed.
template <int kQueries>
__device__ void open_rows(const RecoverParams& params, RecoverMmaShared& shared, int group) {
  const numeric::RowState& rows = params.rows;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kQueries) {
    const int row = group * kQueries + thread;
    const bool flagged = row < rows.rows && (rows.flags[row] & numeric::kRowRecover) != 0;
    shared.window[thread] = flagged ? rows.windows[row] : make_int2(0, 0);
    if (flagged) {
      // A record equal to the floor is still to be found.
      const uint64_t floor = rows.records[static_cast<int64_t>(row) * rows.capacity];
      rows.floor_record[row] = floor > 0 ? floor - 1 : 0;
      rows.floor_score[row] = numeric::record_score(floor);
      rows.counts[row] = static_cast<uint32_t>(numeric::ForcedKeys(rows, row, params.topk).count);
      atomicAdd(params.recovered, 1ull);
    }
    __threadfence();
  }
  __syncthreads();
  for (int query = 0; query < kQueries; ++query) {
    const int row = group * kQueries + query;
    if (row >= rows.rows || (rows.flags[row] & numeric::kRowRecover) == 0) continue;
    const numeric::ForcedKeys forced(rows, row, params.topk);
    uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
    for (int i = thread; i < forced.count; i += RecoverMmaConfig::kThreads) {
      records[i] = forced.record(i);
    }
  }
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
    params.rows.floor_score[row] = numeric::record_score(least);
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
    const float floor = open ? params.rows.floor_score[group * kQueries + query] : 0.0f;
    refine::record_scores(params.rows, group * kQueries, floor, scores, ids, open);
  }
};

template <class Path, int kHeads>
__device__ void recover_group(const RecoverParams& params, RecoverMmaShared& shared, int group) {
  using Config = RecoverMmaConfig;
  using Group = RecoverGroup<Path, kHeads>;
  open_rows<Group::kQueries>(params, shared, group);
  int low = params.num_keys;
  int high = 0;
  for (int query = 0; query < Group::kQueries; ++query) {
    const int2 window = shared.window[query];
    if (window.x >= window.y) continue;
    low = window.x < low ? window.x : low;
    high = window.y > high ? window.y : high;
  }
  if (low >= high) {
    __syncthreads();  // all have read the windows
    return;
  }
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
  __syncthreads();
}

template <class Path, int kHeads>
__global__ void __launch_bounds__(RecoverMmaConfig::kThreads, 1)
    recover_mma_kernel(const __grid_constant__ RecoverParams params) {
  constexpr int kQueries = 128 / kHeads;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<RecoverMmaShared*>(shared_bytes);
  const int groups = (params.rows.rows + kQueries - 1) / kQueries;
  for (int group = static_cast<int>(blockIdx.x); group < groups;
       group += static_cast<int>(gridDim.x)) {
    bool any = false;
    for (int query = 0; query < kQueries; ++query) {
      const int row = group * kQueries + query;
      any = any || (row < params.rows.rows && (params.rows.flags[row] & numeric::kRowRecover) != 0);
    }
    if (any) recover_group<Path, kHeads>(params, shared, group);
  }
}

template <class Path, int kHeads>
cudaError_t launch_recover_heads(const RecoverParams& params, int multiprocessors,
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
