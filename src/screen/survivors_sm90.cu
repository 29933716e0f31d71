// SPDX-License-Identifier: Apache-2.0
#include "screen/survivors_sm90.cuh"

#include "screen/screen_sm90.cuh"

namespace dosa::screen {
namespace {

struct Config {
  static constexpr int kThreads = 256;
  static constexpr int kUnits = 4;        // units of masks one CTA holds in registers
  static constexpr int kMostCtas = 2048;  // two waves of small CTAs; empty rounds end quickly
  static constexpr int kWordsPerThread = kUnits * kMaskWords / kThreads;
  static constexpr int kSettleThreads = 1024;
  static constexpr int kTileKeys = 64;  // of refinement
};

/// Keys (bits 4 * key) of a mask word that survive for the queries in `queries`.
__device__ uint32_t keys_of(uint32_t word, uint32_t queries, int num_queries) {
  const uint32_t chosen = word & (queries * 0x11111111u);
  if (num_queries == 1) {
    // One query: bring its bit to the lowest place of each nibble.
    return chosen >> (__ffs(static_cast<int>(queries)) - 1);
  }
  return (chosen | chosen >> 1 | chosen >> 2 | chosen >> 3) & 0x11111111u;
}

__device__ int screen_rows_of(const SurvivorParams& params) {
  return params.chosen != nullptr ? *params.chosen : params.screen_rows;
}

/// Where a thread's words lie: the same in every unit, as a step of kThreads words is two warps.
struct WordPlace {
  int quad;      // of the block's 16
  int unit_row;  // of the word's first key, for an even count of steps

  __device__ WordPlace(int thread, int words) {
    const int rest = thread % 128;
    const int in_tile = rest % words;
    quad = (rest / (4 * words) * words + in_tile) / 2;
    unit_row = rest / words % 4 * 64 + thread / 128 * 16 + in_tile % 2 * 8;
  }

  /// Unit (in the CTA) and first key of the thread's word number `step`.
  static __device__ int unit(int step) { return step * Config::kThreads / kMaskWords; }
  __device__ int row(int step) const {
    return unit_row + step * Config::kThreads % kMaskWords / 128 * 16;
  }
};

/// The mask words one thread holds, and how many keys of them each of its quad's groups keeps.
template <int kGroupRows>
struct ThreadWords {
  static constexpr int kGroups = 4 / kGroupRows;  // of the quad
  static constexpr uint32_t kQueries = (1u << kGroupRows) - 1;
  uint32_t words[Config::kWordsPerThread];
  int own[kGroups] = {};

  static __device__ uint32_t keys(uint32_t word, int group) {
    return keys_of(word, kQueries << (group * kGroupRows), kGroupRows);
  }

  __device__ void load(const SurvivorParams& params, int block, int first_unit, int units) {
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t* const masks =
        params.masks + (static_cast<int64_t>(block) * params.mask_units + first_unit) * kMaskWords;
#pragma unroll
    for (int i = 0; i < Config::kWordsPerThread; ++i) {
      const int at = i * Config::kThreads + thread;
      words[i] = first_unit + at / kMaskWords < units ? masks[at] : 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) own[g] += __popc(keys(words[i], g));
    }
  }
};

template <int kGroupRows>
__global__ void __launch_bounds__(Config::kThreads)
    count_survivors_sm90_kernel(const __grid_constant__ SurvivorParams params) {
  using Words = ThreadWords<kGroupRows>;
  constexpr int kGroups = 16 * Words::kGroups;  // of the block
  __shared__ int counts[kGroups];
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.y);
  const int units = gpu::round_units(params.round, params.round.orders[block]);
  const int step = static_cast<int>(gridDim.x) * Config::kUnits;
  int first_unit = static_cast<int>(blockIdx.x) * Config::kUnits;
  if (first_unit >= units) return;
  if (thread < kGroups) counts[thread] = 0;
  __syncthreads();
  Words words;
  for (; first_unit < units; first_unit += step) words.load(params, block, first_unit, units);
  const WordPlace place(thread, mask_words(screen_rows_of(params)));
#pragma unroll
  for (int g = 0; g < Words::kGroups; ++g) {
    if (words.own[g] != 0) atomicAdd(&counts[place.quad * Words::kGroups + g], words.own[g]);
  }
  __syncthreads();
  if (thread < kGroups && counts[thread] != 0) {
    atomicAdd(params.lists.counts + block * kGroups + thread, counts[thread]);
  }
}

/// Lists the survivors of units [first_unit, first_unit + kUnits) of the CTA's block of rows; the
/// whole CTA calls this.
template <int kGroupRows>
__device__ void list_units(const SurvivorParams& params, const gpu::KeyOrder& order,
                           const WordPlace& place, int first_unit, int units) {
  using Words = ThreadWords<kGroupRows>;
  constexpr int kGroups = 16 * Words::kGroups;  // of the block
  __shared__ int counts[kGroups];
  __shared__ int bases[kGroups];
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.y);
  if (thread < kGroups) counts[thread] = 0;
  __syncthreads();
  Words words;
  words.load(params, block, first_unit, units);
  const int first_group = place.quad * Words::kGroups;
  int offsets[Words::kGroups];
#pragma unroll
  for (int g = 0; g < Words::kGroups; ++g) {
    offsets[g] = words.own[g] != 0 ? atomicAdd(&counts[first_group + g], words.own[g]) : 0;
  }
  __syncthreads();
  if (thread < kGroups) {
    const int group = block * kGroups + thread;
    const int before =
        counts[thread] != 0 ? atomicAdd(params.lists.cursors + group, counts[thread]) : 0;
    bases[thread] = params.lists.tile_first[group] * Config::kTileKeys + before;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < Words::kGroups; ++g) {
    int at = bases[first_group + g] + offsets[g];
    for (int i = 0; i < Config::kWordsPerThread; ++i) {
      uint32_t keys = Words::keys(words.words[i], g);
      if (keys == 0) continue;
      const int unit = gpu::unit_at(order, params.round.begin + first_unit + WordPlace::unit(i));
      const int first_key = unit * gpu::kUnitKeys + place.row(i);
      for (; keys != 0; keys &= keys - 1) {
        const int key = first_key + (__ffs(static_cast<int>(keys)) - 1) / 4;
        // Keys past N have no valid bound; they are listed as -1 and scored as nothing.
        params.lists.keys[at++] = key < params.num_keys ? key : -1;
      }
    }
  }
}

template <int kGroupRows>
__global__ void __launch_bounds__(Config::kThreads)
    list_survivors_sm90_kernel(const __grid_constant__ SurvivorParams params) {
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.y);
  const gpu::KeyOrder order = params.round.orders[block];
  const int units = gpu::round_units(params.round, order);
  const int first_unit = static_cast<int>(blockIdx.x) * Config::kUnits;
  if (first_unit >= units) return;
  const WordPlace place(thread, mask_words(screen_rows_of(params)));
  const int step = static_cast<int>(gridDim.x) * Config::kUnits;
  for (int from = first_unit; from < units; from += step) {
    list_units<kGroupRows>(params, order, place, from, units);
  }
}

/// One CTA: chooses per block, then numbers the tiles of 64 keys of all groups.
__global__ void __launch_bounds__(Config::kSettleThreads)
    settle_sm90_kernel(const __grid_constant__ SurvivorParams params) {
  __shared__ unsigned long long survivors[gpu::kMaxBlocks];
  __shared__ int warp_sums[32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int per_block = gpu::kBlockRows / params.lists.group_rows;
  const int groups = params.round.blocks * per_block;
  if (thread < gpu::kMaxBlocks) survivors[thread] = 0;
  __syncthreads();
  for (int group = thread; group < groups; group += Config::kSettleThreads) {
    atomicAdd(&survivors[group / per_block],
              static_cast<unsigned long long>(params.lists.counts[group]));
    params.lists.cursors[group] = 0;
  }
  __syncthreads();
  if (thread < params.round.blocks) {
    const int units = gpu::round_units(params.round, params.round.orders[thread]);
    const float most = kMostSurvivors * static_cast<float>(units * gpu::kUnitKeys);
    const bool dense = static_cast<float>(survivors[thread]) > most * static_cast<float>(per_block);
    if (dense) params.orders[thread].split_from = params.retry_from;
    if (!dense && survivors[thread] != 0) atomicAdd(params.lists.total, survivors[thread]);
    survivors[thread] = dense ? 0 : 1;
  }
  __syncthreads();
  const int per_thread = (groups + Config::kSettleThreads - 1) / Config::kSettleThreads;
  const int first = thread * per_thread;
  const int last = first + per_thread < groups ? first + per_thread : groups;
  int tiles = 0;
  for (int group = first; group < last; ++group) {
    if (survivors[group / per_block] == 0) params.lists.counts[group] = 0;
    tiles += (params.lists.counts[group] + Config::kTileKeys - 1) / Config::kTileKeys;
  }
  int upto = tiles;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_sums[thread / 32] = upto;
  __syncthreads();
  int before = upto - tiles;
  for (int warp = 0; warp < thread / 32; ++warp) before += warp_sums[warp];
  for (int group = first; group < last; ++group) {
    params.lists.tile_first[group] = before;
    before += (params.lists.counts[group] + Config::kTileKeys - 1) / Config::kTileKeys;
  }
  if (thread == Config::kSettleThreads - 1) params.lists.tile_first[groups] = before;
}

dim3 count_grid(const SurvivorParams& params) {
  const int units = params.round.end - params.round.begin;
  const int steps = (units + Config::kUnits - 1) / Config::kUnits;
  const int most = (Config::kMostCtas + params.round.blocks - 1) / params.round.blocks;
  return dim3(steps < most ? steps : most, params.round.blocks);
}

template <int kGroupRows>
cudaError_t launch_lists(const SurvivorParams& params, cudaStream_t stream) {
  settle_sm90_kernel<<<1, Config::kSettleThreads, 0, stream>>>(params);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  list_survivors_sm90_kernel<kGroupRows>
      <<<count_grid(params), Config::kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

template <int kGroupRows>
cudaError_t launch_count(const SurvivorParams& params, cudaStream_t stream) {
  count_survivors_sm90_kernel<kGroupRows>
      <<<count_grid(params), Config::kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_count_survivors_sm90(const SurvivorParams& params, cudaStream_t stream) {
  if (params.round.blocks == 0) return cudaSuccess;
  const size_t groups = params.round.blocks * gpu::kBlockRows / params.lists.group_rows;
  const cudaError_t status = cudaMemsetAsync(params.lists.counts, 0, groups * sizeof(int), stream);
  if (status != cudaSuccess) return status;
  switch (params.lists.group_rows) {
    case 4:
      return launch_count<4>(params, stream);
    case 2:
      return launch_count<2>(params, stream);
    case 1:
      return launch_count<1>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_survivors_sm90(const SurvivorParams& params, cudaStream_t stream) {
  if (params.round.blocks == 0) return cudaSuccess;
  const cudaError_t status = launch_count_survivors_sm90(params, stream);
  if (status != cudaSuccess) return status;
  switch (params.lists.group_rows) {
    case 4:
      return launch_lists<4>(params, stream);
    case 2:
      return launch_lists<2>(params, stream);
    case 1:
      return launch_lists<1>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::screen
