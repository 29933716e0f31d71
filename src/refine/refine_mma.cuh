// SPDX-License-Identifier: Apache-2.0
// Refinement with mma.sync. The 128 columns of a group lie in the registers of a team of two warps,
// or for H = 128 of one; every team gathers its own keys into a ring of its own, 16 for each of its
// warps in a step. Teams share nothing.
#pragma once

#include "gpu/operands_mma.cuh"
#include "refine/chain_mma.cuh"
#include "refine/refine_sm90.cuh"
#include "refine/sinks.cuh"

namespace dosa::refine {

template <int kHeads_>
struct GatherConfig {
  static constexpr int kHeads = kHeads_;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kCtasPerSm = 2;
  static constexpr int kTeam = kHeads == 128 ? 1 : 2;  // warps; a warp holds whole queries
  static constexpr int kTeams = kWarps / kTeam;
  static constexpr int kTiles = 16 / kTeam;  // of 8 columns, in a warp
  static constexpr bool kDecoded = kTiles == 8;
  static constexpr int kGroupRows = 128 / kHeads;
  static constexpr int kKeys = 16 * kTeam;  // of one step
  static constexpr int kStages = 4;
  static constexpr int kListTile = 64;  // keys by which the lists are padded
};

/// One team's ring.
template <class C>
struct GatherRing {
  alignas(128) uint8_t keys[C::kStages][C::kKeys * 128];  // swizzled rows
  float scales[C::kStages][C::kKeys];
  int ids[C::kStages][C::kKeys];  // -1: no key
};

/// Walks the flattened steps of all groups and knows the group of the current one.
template <class C>
struct GroupCursor {
  int group;
  int first;  // step at which the group begins
  int end;

  __device__ __forceinline__ void start(const screen::SurvivorLists& lists, int groups, int step) {
    int low = 0;
    int high = groups;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (begin_of(lists, middle) <= step) {
        low = middle;
      } else {
        high = middle;
      }
    }
    group = low;
    first = begin_of(lists, low);
    end = begin_of(lists, low + 1);
  }

  static __device__ __forceinline__ int begin_of(const screen::SurvivorLists& lists, int group) {
    return lists.tile_first[group] * (C::kListTile / C::kKeys);
  }

  __device__ __forceinline__ void move_to(const screen::SurvivorLists& lists, int step) {
    while (step >= end) {
      ++group;
      first = end;
      end = begin_of(lists, group + 1);
    }
  }
};

/// The id that this lane (mod 16) gathers in a step; -1 past the group's keys.
template <class C>
__device__ __forceinline__ int listed_key(const screen::SurvivorLists& lists,
                                          const GroupCursor<C>& cursor, int step) {
  const int thread = static_cast<int>(threadIdx.x);
  const int in_step = thread / 32 % C::kTeam * 16 + (thread & 15);
  const int at = (step - cursor.first) * C::kKeys + in_step;
  const int64_t listed = static_cast<int64_t>(step) * C::kKeys + in_step;
  return at < lists.counts[cursor.group] ? lists.keys[listed] : -1;
}

/// Starts the copies of this warp's 16 keys; eight lanes copy one key, so that a request is a whole
/// line.
template <class C>
__device__ __forceinline__ void gather_keys(const RefineParams& params, GatherRing<C>& ring,
                                            int stage, int id) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int first = static_cast<int>(threadIdx.x) / 32 % C::kTeam * 16;
  const int piece = lane % 8;
  const uint32_t target = gpu::shared_address(ring.keys[stage]) + first * 128;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 4 * i + lane / 8;
    const int key = __shfl_sync(0xffffffffu, id, row);
    const bool valid = key >= 0 && piece * 16 < params.head_dim;
    gpu::copy_async_16(target + row * 128 + (piece ^ (row & 7)) * 16,
                       params.k + (valid ? key * params.k_stride + piece * 16 : 0), valid);
  }
  if (lane < 16) {
    ring.ids[stage][first + lane] = id;
    gpu::copy_async_4(gpu::shared_address(&ring.scales[stage][first + lane]),
                      params.k_scale + (id >= 0 ? id : 0), id >= 0);
  }
}

/// The copies of the whole team are visible, and all its warps have come here.
template <class C>
__device__ __forceinline__ void meet_team() {
  if constexpr (C::kTeam == 1) {
    __syncwarp();
  } else {
    gpu::named_barrier_sync(1 + static_cast<int>(threadIdx.x) / (32 * C::kTeam), 32 * C::kTeam);
  }
}

/// What a warp keeps of a group.
template <class Path, class C>
struct GroupColumns {
  static constexpr int kQueries = C::kGroupRows / C::kTeam;
  gpu::Columns<Path, C::kTiles, C::kDecoded> columns;
  float weights[2 * C::kTiles];
  float floor;
  int first_row;

  __device__ __forceinline__ void load(const RefineParams& params, int group) {
    const int c = static_cast<int>(threadIdx.x) & 3;
    const int part = static_cast<int>(threadIdx.x) / 32 % C::kTeam;
    first_row = group * C::kGroupRows + part * kQueries;
    columns.load(params.query_rows, static_cast<int64_t>(group) * 128 + part * 8 * C::kTiles);
#pragma unroll
    for (int i = 0; i < 2 * C::kTiles; ++i) {
      const int column = i / 2 * 8 + 2 * c + i % 2;
      const int row = first_row + column / C::kHeads;
      const int head = column % C::kHeads;
      const bool real = row < params.rows.rows && head < params.heads;
      weights[i] = real ? params.weights[row * params.weights_stride + head] : 0.0f;
    }
    floor = params.rows.floor_score[first_row + LaneShare<kQueries>::query(c)];
  }

  /// Scores the 16 keys from `first` on of a stage.
  __device__ __forceinline__ void score(const RefineParams& params, const GatherRing<C>& ring,
                                        int stage, int first) const {
    const int row = first + (static_cast<int>(threadIdx.x) & 31) / 4;
    uint32_t words[2][gpu::kWordsPerRow];
    gpu::load_key_words(gpu::shared_address(ring.keys[stage]) + first * 128, words);
    const int ids[2] = {ring.ids[stage][row], ring.ids[stage][row + 8]};
    const float scales[2] = {ring.scales[stage][row], ring.scales[stage][row + 8]};
    float scores[kQueries][2];
    TileChain<C::kHeads, C::kTiles>::template scores<Path>(columns, Path::decode(words), weights,
                                                           scales, scores);
    record_scores(params.rows, first_row, floor, scores, ids);
  }
};

template <class Path, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    refine_mma_kernel(const __grid_constant__ RefineParams params) {
  using Cursor = GroupCursor<C>;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  const int team = static_cast<int>(threadIdx.x) / (32 * C::kTeam);
  auto& ring = reinterpret_cast<GatherRing<C>*>(shared_bytes)[team];
  const int64_t total = Cursor::begin_of(params.lists, params.groups);
  const int64_t teams = static_cast<int64_t>(gridDim.x) * C::kTeams;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * C::kTeams + team;
  const int from = static_cast<int>(total * own / teams);
  const int to = static_cast<int>(total * (own + 1) / teams);
  if (from >= to) return;
  Cursor ahead;
  ahead.start(params.lists, params.groups, from);
  Cursor here = ahead;
  int next_id = listed_key<C>(params.lists, ahead, from);
  int issued = from;
  // Each step commits one group of copies, an empty one past the end, so that counting them works.
  const auto issue = [&] {
    if (issued < to) {
      gather_keys<C>(params, ring, issued % C::kStages, next_id);
      ++issued;
      if (issued < to) {
        ahead.move_to(params.lists, issued);
        next_id = listed_key<C>(params.lists, ahead, issued);
      }
    }
    gpu::copy_async_commit();
  };
  for (int i = 0; i < C::kStages - 1; ++i) issue();
  GroupColumns<Path, C> group;
  int loaded = -1;
  for (int step = from; step < to; ++step) {
    here.move_to(params.lists, step);
    if (here.group != loaded) {
      group.load(params, here.group);
      loaded = here.group;
    }
    gpu::copy_async_wait<C::kStages - 2>();
    meet_team<C>();  // this step's keys are there, and the stage of the step before is free
    issue();
#pragma unroll 1
    for (int first = 0; first < C::kKeys; first += 16) {
      group.score(params, ring, step % C::kStages, first);
    }
  }
}

template <class Path, int kHeads>
cudaError_t launch_refine_heads(const RefineParams& params, int multiprocessors,
                                cudaStream_t stream) {
  using C = GatherConfig<kHeads>;
  constexpr int kBytes = C::kTeams * sizeof(GatherRing<C>);
  static_assert(C::kCtasPerSm * (kBytes + 1024) <= 100 * 1024, "two CTAs fit every card");
  const auto kernel = refine_mma_kernel<Path, C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors * C::kCtasPerSm, C::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <class Path>
cudaError_t launch_refine_mma(const RefineParams& params, int padded_heads, int multiprocessors,
                              cudaStream_t stream) {
  if (params.groups == 0) return cudaSuccess;
  switch (padded_heads) {
    case 32:
      return launch_refine_heads<Path, 32>(params, multiprocessors, stream);
    case 64:
      return launch_refine_heads<Path, 64>(params, multiprocessors, stream);
    case 128:
      return launch_refine_heads<Path, 128>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::refine
