// SPDX-License-Identifier: Apache-2.0
#include "screen/survivors_sm90.cuh"

#include "screen/screen_sm90.cuh"

namespace dosa::screen {
namespace {

struct Config {
  static constexpr int kThreads = 256;
  static constexpr int kUnits = 4;  // units of masks one CTA holds in registers
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

template <int kGroupRows>
__global__ void __launch_bounds__(Config::kThreads)
    compact_sm90_kernel(const __grid_constant__ SurvivorParams params) {
  constexpr int kGroupsPerQuad = 4 / kGroupRows;
  constexpr int kGroups = 16 * kGroupsPerQuad;
  __shared__ int counts[kGroups];
  __shared__ int bases[kGroups];
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.y);
  const gpu::KeyOrder order = params.round.orders[block];
  const int units = gpu::round_units(params.round, order);
  const int first_unit = static_cast<int>(blockIdx.x) * Config::kUnits;
  if (first_unit >= units) return;
  if (thread < kGroups) counts[thread] = 0;
  __syncthreads();
  const uint32_t* const masks =
      params.masks + (static_cast<int64_t>(block) * params.mask_units + first_unit) * kMaskWords;
  const int quad = thread % 32 / 2;
  uint32_t words[Config::kWordsPerThread];
  int own[kGroupsPerQuad] = {};
#pragma unroll
  for (int i = 0; i < Config::kWordsPerThread; ++i) {
    const int at = i * Config::kThreads + thread;
    words[i] = first_unit + at / kMaskWords < units ? masks[at] : 0;
#pragma unroll
    for (int g = 0; g < kGroupsPerQuad; ++g) {
      constexpr uint32_t kQueries = (1u << kGroupRows) - 1;
      own[g] += __popc(keys_of(words[i], kQueries << (g * kGroupRows), kGroupRows));
    }
  }
  int offsets[kGroupsPerQuad];
#pragma unroll
  for (int g = 0; g < kGroupsPerQuad; ++g) {
    offsets[g] = own[g] != 0 ? atomicAdd(&counts[quad * kGroupsPerQuad + g], own[g]) : 0;
  }
  __syncthreads();
  const int first_group = block * kGroups;
  if (thread < kGroups) {
    bases[thread] = counts[thread] != 0
                        ? atomicAdd(params.lists.counts + first_group + thread, counts[thread])
                        : 0;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroupsPerQuad; ++g) {
    const int group = quad * kGroupsPerQuad + g;
    int at = bases[group] + offsets[g];
    int* const list =
        params.lists.keys + static_cast<int64_t>(first_group + group) * params.lists.capacity;
    for (int i = 0; i < Config::kWordsPerThread; ++i) {
      constexpr uint32_t kQueries = (1u << kGroupRows) - 1;
      uint32_t keys = keys_of(words[i], kQueries << (g * kGroupRows), kGroupRows);
      if (keys == 0) continue;
      const int word = i * Config::kThreads + thread;
      const int unit = gpu::unit_at(order, params.round.begin + first_unit + word / kMaskWords);
      const int first_key = unit * gpu::kUnitKeys + word % kMaskWords / 32 * 16 + word % 2 * 8;
      while (keys != 0) {
        const int key = first_key + (__ffs(static_cast<int>(keys)) - 1) / 4;
        keys &= keys - 1;
        // Keys past N have no valid bound; they are listed as -1 and scored as nothing.
        if (at < params.lists.capacity) list[at] = key < params.num_keys ? key : -1;
        ++at;
      }
    }
  }
}

/// One CTA: chooses per block, then numbers the tiles of 64 keys of all groups.
__global__ void __launch_bounds__(Config::kSettleThreads)
    settle_sm90_kernel(const __grid_constant__ SurvivorParams params) {
  __shared__ int dense[gpu::kMaxBlocks];
  __shared__ int warp_sums[32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int groups_per_block = gpu::kBlockRows / params.lists.group_rows;
  const int groups = params.round.blocks * groups_per_block;
  for (int block = thread; block < params.round.blocks; block += Config::kSettleThreads) {
    dense[block] = 0;
  }
  __syncthreads();
  for (int group = thread; group < groups; group += Config::kSettleThreads) {
    const int block = group / groups_per_block;
    const int units = gpu::round_units(params.round, params.round.orders[block]);
    const float most = params.most_share * static_cast<float>(units * gpu::kUnitKeys);
    const int count = params.lists.counts[group];
    if (count > params.lists.capacity || static_cast<float>(count) > most) dense[block] = 1;
  }
  __syncthreads();
  for (int block = thread; block < params.round.blocks; block += Config::kSettleThreads) {
    if (dense[block] != 0) params.orders[block].active = 1 << kDense;
  }
  const int per_thread = (groups + Config::kSettleThreads - 1) / Config::kSettleThreads;
  const int first = thread * per_thread;
  const int last = first + per_thread < groups ? first + per_thread : groups;
  int tiles = 0;
  unsigned long long survivors = 0;
  for (int group = first; group < last; ++group) {
    if (dense[group / groups_per_block] != 0) params.lists.counts[group] = 0;
    const int count = params.lists.counts[group];
    survivors += static_cast<unsigned long long>(count);
    tiles += (count + Config::kTileKeys - 1) / Config::kTileKeys;
  }
  int upto = tiles;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
    survivors += __shfl_xor_sync(0xffffffffu, survivors, step);
  }
  if (lane == 31) warp_sums[thread / 32] = upto;
  if (lane == 0 && survivors != 0) atomicAdd(params.lists.total, survivors);
  __syncthreads();
  int before = upto - tiles;
  for (int warp = 0; warp < thread / 32; ++warp) before += warp_sums[warp];
  for (int group = first; group < last; ++group) {
    params.lists.tile_first[group] = before;
    before += (params.lists.counts[group] + Config::kTileKeys - 1) / Config::kTileKeys;
  }
  if (thread == Config::kSettleThreads - 1) params.lists.tile_first[groups] = before;
}

}  // namespace

cudaError_t launch_survivors_sm90(const SurvivorParams& params, cudaStream_t stream) {
  if (params.round.blocks == 0) return cudaSuccess;
  const int groups = params.round.blocks * gpu::kBlockRows / params.lists.group_rows;
  cudaError_t status = cudaMemsetAsync(params.lists.counts, 0, groups * sizeof(int), stream);
  if (status != cudaSuccess) return status;
  const int units = params.round.end - params.round.begin;
  const dim3 grid((units + Config::kUnits - 1) / Config::kUnits, params.round.blocks);
  switch (params.lists.group_rows) {
    case 4:
      compact_sm90_kernel<4><<<grid, Config::kThreads, 0, stream>>>(params);
      break;
    case 2:
      compact_sm90_kernel<2><<<grid, Config::kThreads, 0, stream>>>(params);
      break;
    case 1:
      compact_sm90_kernel<1><<<grid, Config::kThreads, 0, stream>>>(params);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  settle_sm90_kernel<<<1, Config::kSettleThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace dosa::screen
