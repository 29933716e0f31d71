// SPDX-License-Identifier: Apache-2.0
#include "screen/seeds_sm90.cuh"

namespace dosa::screen {
namespace {

struct Config {
  static constexpr int kThreads = 256;
  static constexpr int kTileKeys = 64;  // of refinement
  static constexpr int kMostSampleUnits = 64;
};

/// The units of a block's sample, sorted out once per CTA.
struct SampleUnits {
  int units[Config::kMostSampleUnits];
  int count;

  __device__ void load(const gpu::KeyOrder& order, int sample_units) {
    const int thread = static_cast<int>(threadIdx.x);
    const int most = order.units < sample_units ? order.units : sample_units;
    if (thread < most) units[thread] = gpu::unit_at(order, thread);
    if (thread == 0) count = most;
  }

  [[nodiscard]] __device__ bool holds(int key) const {
    bool found = false;
    for (int i = 0; i < count; ++i) found = found || units[i] == key / gpu::kUnitKeys;
    return found;
  }
};

__device__ bool in_list(const int32_t* list, int count, int key) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && list[low] == key;
}

__device__ int list_length(const int32_t* list, int topk) {
  int low = 0;
  int high = topk;  // ids, then -1
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle] >= 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void pilot_windows_sm90_kernel(const int32_t* k_start, const int32_t* k_end,
                                          int pilot_rows, int32_t* pilot_start,
                                          int32_t* pilot_end) {
  const int pilot = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (pilot >= pilot_rows) return;
  const int64_t row = static_cast<int64_t>(pilot) * kPilotStride + kPilotStride / 2;
  if (k_start != nullptr) pilot_start[pilot] = k_start[row];
  if (k_end != nullptr) pilot_end[pilot] = k_end[row];
}

__global__ void __launch_bounds__(Config::kThreads)
    seeds_sm90_kernel(const __grid_constant__ SeedParams params) {
  __shared__ SampleUnits sample;
  __shared__ int filled;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int group = static_cast<int>(blockIdx.x);
  const int row = group * params.lists.group_rows;
  sample.load(params.orders[row / gpu::kBlockRows], params.sample_units);
  if (thread == 0) filled = 0;
  __syncthreads();
  const int64_t at = (params.first_row + row - kPilotStride / 2) / kPilotStride;
  const int most = params.pilot_rows - 1;
  const int left = static_cast<int>(at < most ? at : most);
  const int right = left < most ? left + 1 : most;
  const int32_t* const first = params.pilots + static_cast<int64_t>(left) * params.topk;
  const int32_t* const second = params.pilots + static_cast<int64_t>(right) * params.topk;
  const int first_count = list_length(first, params.topk);
  const int second_count = right == left ? 0 : list_length(second, params.topk);
  const int tiles = static_cast<int>(seed_keys(params.topk)) / Config::kTileKeys;
  const int64_t base = static_cast<int64_t>(group) * tiles * Config::kTileKeys;
  const int total = first_count + second_count;
  for (int start = 0; start < total; start += Config::kThreads) {
    const int i = start + thread;
    bool keep = false;
    int key = -1;
    if (i < total) {
      key = i < first_count ? first[i] : second[i - first_count];
      keep = !sample.holds(key) && (i < first_count || !in_list(first, first_count, key));
    }
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    int before = 0;
    if (lane == 0 && votes != 0) before = atomicAdd(&filled, __popc(votes));
    before = __shfl_sync(0xffffffffu, before, 0);
    if (keep) params.lists.keys[base + before + __popc(votes & ((1u << lane) - 1))] = key;
  }
  __syncthreads();
  // Every group has room for both pilots' winners; tiles past its count hold no key.
  if (thread == 0) {
    params.lists.counts[group] = filled;
    params.lists.tile_first[group] = group * tiles;
    if (blockIdx.x == gridDim.x - 1) params.lists.tile_first[group + 1] = (group + 1) * tiles;
  }
}

__global__ void __launch_bounds__(Config::kThreads)
    drop_seeds_sm90_kernel(const __grid_constant__ numeric::RowState rows, int topk,
                           const gpu::KeyOrder* orders, int sample_units) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  auto* const kept = reinterpret_cast<uint64_t*>(dynamic_shared);
  __shared__ SampleUnits sample;
  __shared__ int filled;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int row = static_cast<int>(blockIdx.x);
  const int count = static_cast<int>(rows.counts[row]);
  sample.load(orders[row / gpu::kBlockRows], sample_units);
  if (thread == 0) filled = 0;
  __syncthreads();
  const int2 ranked = rows.windows[row];
  uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
  for (int start = 0; start < count; start += Config::kThreads) {
    const int i = start + thread;
    const uint64_t record = i < count ? records[i] : 0;
    const int key = numeric::record_key(record);
    const bool forced = key < ranked.x || key >= ranked.y;
    const bool keep = i < count && (forced || sample.holds(key));
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    int before = 0;
    if (lane == 0 && votes != 0) before = atomicAdd(&filled, __popc(votes));
    before = __shfl_sync(0xffffffffu, before, 0);
    if (keep) kept[before + __popc(votes & ((1u << lane) - 1))] = record;
  }
  __syncthreads();
  for (int i = thread; i < filled; i += Config::kThreads) records[i] = kept[i];
  if (thread != 0) return;
  rows.counts[row] = static_cast<uint32_t>(filled);
  const uint64_t floor = rows.floor_record[row];
  // The K-th best may be a dropped seed: it must pass "above the floor" when the scan meets it.
  if (floor != 0 && floor != ~uint64_t{0}) rows.floor_record[row] = floor - 1;
}

}  // namespace

cudaError_t launch_pilot_windows_sm90(const int32_t* k_start, const int32_t* k_end, int pilot_rows,
                                      int32_t* pilot_start, int32_t* pilot_end,
                                      cudaStream_t stream) {
  const int ctas = (pilot_rows + Config::kThreads - 1) / Config::kThreads;
  pilot_windows_sm90_kernel<<<ctas, Config::kThreads, 0, stream>>>(k_start, k_end, pilot_rows,
                                                                   pilot_start, pilot_end);
  return cudaGetLastError();
}

cudaError_t launch_seeds_sm90(const SeedParams& params, cudaStream_t stream) {
  const int groups = params.blocks * gpu::kBlockRows / params.lists.group_rows;
  seeds_sm90_kernel<<<groups, Config::kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_drop_seeds_sm90(const numeric::RowState& rows, int topk,
                                   const gpu::KeyOrder* orders, int sample_units,
                                   cudaStream_t stream) {
  // Reduction left at most K records where a floor exists; rows without one hold less than K.
  const int bytes = topk * static_cast<int>(sizeof(uint64_t));
  drop_seeds_sm90_kernel<<<rows.rows, Config::kThreads, bytes, stream>>>(rows, topk, orders,
                                                                         sample_units);
  return cudaGetLastError();
}

}  // namespace dosa::screen
