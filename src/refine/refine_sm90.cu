// SPDX-License-Identifier: Apache-2.0
// Refinement: A = 64 gathered keys, B = 128 / H queries of H heads, the dense kernel's own shape.
//
// Two producer warps gather keys with 16-byte asynchronous copies into a ring of tiles of 64
// keys; two consumer warpgroups take every other tile. Two CTAs share a multiprocessor, so that the
// products of one cover the epilogue and the group changes of the other.
#include "refine/refine_sm90.cuh"

#include "gpu/ptx_sm90.cuh"
#include "refine/chain_sm90.cuh"

namespace dosa::refine {
namespace {

template <int kHeads_>
struct Config {
  static constexpr int kHeads = kHeads_;
  static constexpr int kQueries = 128 / kHeads;
  static constexpr int kTileKeys = 64;
  static constexpr int kTileBytes = kTileKeys * 128;
  static constexpr int kColumnBytes = 128 * 128;
  static constexpr int kStages = 8;       // 64 KiB of keys in flight per CTA
  static constexpr int kLag = 4;          // tiles issued before the oldest is handed over
  static constexpr int kColumnSlots = 2;  // the next group's queries load behind this one's
  static constexpr int kConsumers = 2;
  static constexpr int kConsumerThreads = kConsumers * 128;
  static constexpr int kProducerThreads = kTileKeys;  // one key each
  static constexpr int kThreads = kConsumerThreads + kProducerThreads;
  static constexpr int kCtasPerSm = 2;
  static_assert(kLag < kStages, "the ring holds what has not been handed over");
};

template <class C>
struct SharedStorage {
  alignas(1024) uint8_t keys[C::kStages][C::kTileBytes];            // (64, D, stage) 128B swizzle
  alignas(1024) uint8_t columns[C::kColumnSlots][C::kColumnBytes];  // (128, D, slot) 128B swizzle
  alignas(16) float weights[C::kColumnSlots][4][kClassStride];
  uint64_t floor_record[C::kColumnSlots][C::kQueries];
  int2 window[C::kColumnSlots][C::kQueries];
  float floor_score[C::kColumnSlots][C::kQueries];
  int ids[C::kStages][C::kTileKeys];  // -1: no key
  float scales[C::kStages][C::kTileKeys];
  uint64_t keys_full[C::kStages];
  uint64_t keys_empty[C::kStages];
  uint64_t columns_full[C::kColumnSlots];
  uint64_t columns_empty[C::kColumnSlots];
};

/// Group that holds flattened tile `tile`.
__device__ int group_of(const int* tile_first, int groups, int tile) {
  int low = 0;
  int high = groups;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (tile_first[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Loads the queries of a group and what its epilogue needs; every producer thread has two
/// columns.
template <class C>
__device__ void load_group(const RefineParams& params, SharedStorage<C>& shared, int group,
                           int segment) {
  const int thread = static_cast<int>(threadIdx.x) - C::kConsumerThreads;
  const int slot = segment % C::kColumnSlots;
  gpu::barrier_wait(&shared.columns_empty[slot], (segment / C::kColumnSlots & 1) ^ 1);
  for (int column = thread; column < 128; column += C::kProducerThreads) {
    const int row = group * C::kQueries + column / C::kHeads;
    const int head = column % C::kHeads;
    const bool real = row < params.rows.rows && head < params.heads;
    shared.weights[slot][column % 8 / 2][column / 8 * 2 + column % 2] =
        real ? params.weights[row * params.weights_stride + head] : 0.0f;
  }
  if (thread < C::kQueries) {
    const int own = group * C::kQueries + thread;
    shared.floor_record[slot][thread] = params.rows.floor_record[own];
    shared.floor_score[slot][thread] = params.rows.floor_score[own];
    shared.window[slot][thread] = params.rows.windows[own];
  }
  if (thread == 0) {
    gpu::barrier_arrive_expect(&shared.columns_full[slot], C::kColumnBytes);
    gpu::tensor_load(shared.columns[slot], &params.queries, 0, group * 128,
                     &shared.columns_full[slot]);
  } else {
    gpu::barrier_arrive(&shared.columns_full[slot]);
  }
}

/// Starts the copies of a tile. Each thread has the id of one row; eight neighbouring lanes copy
/// one row together, so that a request is a whole 128-byte line.
template <class C>
__device__ void gather_tile(const RefineParams& params, SharedStorage<C>& shared, int stage,
                            int id) {
  const int thread = static_cast<int>(threadIdx.x) - C::kConsumerThreads;
  const int lane = thread & 31;
  const int piece = lane % 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int in_warp = 4 * i + lane / 8;
    const int row = thread / 32 * 32 + in_warp;
    const int key = __shfl_sync(0xffffffffu, id, in_warp);
    const bool valid = key >= 0 && piece * 16 < params.head_dim;
    const uint32_t target = gpu::shared_address(shared.keys[stage] + row * 128);
    gpu::copy_async_16(target + (piece ^ (row & 7)) * 16,
                       params.k + (valid ? key * params.k_stride + piece * 16 : 0), valid);
  }
  shared.ids[stage][thread] = id;
  gpu::copy_async_4(gpu::shared_address(&shared.scales[stage][thread]),
                    params.k_scale + (id >= 0 ? id : 0), id >= 0);
  gpu::copy_async_commit();
}

/// Hands tile `stage` over: its copies are complete and visible to the tensor cores.
template <class C>
__device__ void hand_over(SharedStorage<C>& shared, int stage) {
  gpu::fence_proxy_async();
  gpu::barrier_arrive(&shared.keys_full[stage]);
}

template <class C>
__device__ void producer(const RefineParams& params, SharedStorage<C>& shared, int from, int to) {
  const int row = static_cast<int>(threadIdx.x) - C::kConsumerThreads;
  int group = group_of(params.lists.tile_first, params.groups, from);
  int segment = 0;
  int loaded = -1;
  int handed = 0;          // tiles handed over so far
  int previous_start = 0;  // first tile of the segment before the current one
  int current_start = 0;
  int group_first = params.lists.tile_first[group];
  int group_end = params.lists.tile_first[group + 1];
  for (int tile = from; tile < to; ++tile) {
    while (tile >= group_end) {
      ++group;
      group_first = group_end;
      group_end = params.lists.tile_first[group + 1];
    }
    const int done = tile - from;
    const int at = (tile - group_first) * C::kTileKeys + row;
    const int64_t listed = static_cast<int64_t>(tile) * C::kTileKeys + row;
    const int id = at < params.lists.counts[group] ? params.lists.keys[listed] : -1;
    if (loaded != group) {
      previous_start = current_start;
      current_start = done;
      // The slot is free once the segment before the previous one is scored: hand all of it over.
      if (handed < previous_start) {
        gpu::copy_async_wait<0>();
        while (handed < done) hand_over<C>(shared, handed++ % C::kStages);
      }
      load_group<C>(params, shared, group, segment++);
      loaded = group;
    }
    const int stage = done % C::kStages;
    gpu::barrier_wait(&shared.keys_empty[stage], (done / C::kStages & 1) ^ 1);
    gather_tile<C>(params, shared, stage, id);
    if (done + 1 - handed > C::kLag) {
      gpu::copy_async_wait<C::kLag>();
      hand_over<C>(shared, handed++ % C::kStages);
    }
  }
  gpu::copy_async_wait<0>();
  while (handed < to - from) hand_over<C>(shared, handed++ % C::kStages);
}

template <class C>
__device__ __forceinline__ void finish_tile(const RefineParams& params,
                                            const SharedStorage<C>& shared,
                                            const float (&products)[64], const int (&ids)[2],
                                            const float (&scales)[2], int slot, int first_row) {
  using Share = LaneShare<C::kQueries>;
  const int c = static_cast<int>(threadIdx.x) & 3;
  float weights[32];
  read_class_weights(shared.weights[slot][c], weights);
  float scores[C::kQueries][2];
  ScoreChain<C::kHeads>::scores(products, weights, scales, scores);
  const int query = Share::query(c);
  const float floor = shared.floor_score[slot][query];
  float value[2];
  int key[2];
  bool keep[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int half = Share::half(c, i);
    value[i] = i < Share::kValues ? Share::pick(scores, c, i) : 0.0f;
    key[i] = half == 0 ? ids[0] : ids[1];
    keep[i] = i < Share::kValues && Share::owns(c) && !(value[i] < floor);
  }
  if (!__any_sync(0xffffffffu, keep[0] || keep[1])) return;
  const int2 window = shared.window[slot][query];
  const uint64_t floor_record = shared.floor_record[slot][query];
  uint64_t records[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    records[i] = numeric::make_record(value[i], key[i]);
    keep[i] = keep[i] && key[i] >= window.x && key[i] < window.y && records[i] > floor_record;
  }
  numeric::PendingRecords<Share::kClasses> pending;
  pending.begin(params.rows, first_row + query, keep, records);
  pending.finish(params.rows);
}

template <class C>
__device__ void consumer(const RefineParams& params, SharedStorage<C>& shared, int from, int to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warpgroup = __shfl_sync(0xffffffffu, thread / 128, 0);
  const int lane_row = thread % 128 / 32 * 16 + (thread & 31) / 4;
  int group = group_of(params.lists.tile_first, params.groups, from);
  int first = from;
  float products[64];
  for (int segment = 0; first < to; ++segment) {
    while (first >= params.lists.tile_first[group + 1]) ++group;
    const int group_end = params.lists.tile_first[group + 1];
    const int end = group_end < to ? group_end : to;
    const int slot = segment % C::kColumnSlots;
    gpu::barrier_wait(&shared.columns_full[slot], segment / C::kColumnSlots & 1);
    const uint64_t columns = gpu::matrix_descriptor(shared.columns[slot]);
    for (int tile = first; tile < end; ++tile) {
      const int done = tile - from;
      if (done % C::kConsumers != warpgroup) continue;
      const int stage = done % C::kStages;
      gpu::barrier_wait(&shared.keys_full[stage], done / C::kStages & 1);
      const uint64_t keys = gpu::matrix_descriptor(shared.keys[stage]);
      gpu::pin_registers(products);
      gpu::wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        gpu::wgmma_k32(products, keys + step * 2, columns + step * 2, step != 0);
      }
      gpu::wgmma_commit();
      const int ids[2] = {shared.ids[stage][lane_row], shared.ids[stage][lane_row + 8]};
      const float scales[2] = {shared.scales[stage][lane_row], shared.scales[stage][lane_row + 8]};
      gpu::wgmma_wait<0>();
      gpu::pin_registers(products);
      gpu::barrier_arrive(&shared.keys_empty[stage]);
      finish_tile<C>(params, shared, products, ids, scales, slot, group * C::kQueries);
    }
    gpu::barrier_arrive(&shared.columns_empty[slot]);
    first = end;
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    refine_sm90_e4m3_kernel(const __grid_constant__ RefineParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<SharedStorage<C>*>(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) {
      gpu::barrier_init(&shared.keys_full[stage], C::kProducerThreads);
      gpu::barrier_init(&shared.keys_empty[stage], 128);
    }
    for (int slot = 0; slot < C::kColumnSlots; ++slot) {
      gpu::barrier_init(&shared.columns_full[slot], C::kProducerThreads);
      gpu::barrier_init(&shared.columns_empty[slot], C::kConsumerThreads);
    }
    gpu::fence_barrier_init();
  }
  __syncthreads();
  const int64_t total = params.lists.tile_first[params.groups];
  const int from = static_cast<int>(total * blockIdx.x / gridDim.x);
  const int to = static_cast<int>(total * (blockIdx.x + 1) / gridDim.x);
  if (thread >= C::kConsumerThreads) {
    if (from < to) producer<C>(params, shared, from, to);
  } else {
    if (from < to) consumer<C>(params, shared, from, to);
  }
}

template <int kHeads>
cudaError_t launch_heads(const RefineParams& params, int multiprocessors, cudaStream_t stream) {
  using C = Config<kHeads>;
  constexpr int kBytes = sizeof(SharedStorage<C>);
  static_assert(C::kCtasPerSm * (kBytes + 1024) <= 233472, "two CTAs share 228 KiB");
  const auto kernel = refine_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors * C::kCtasPerSm, C::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_refine_sm90(const RefineParams& params, int padded_heads, int multiprocessors,
                               cudaStream_t stream) {
  if (params.groups == 0) return cudaSuccess;
  switch (padded_heads) {
    case 32:
      return launch_heads<32>(params, multiprocessors, stream);
    case 64:
      return launch_heads<64>(params, multiprocessors, stream);
    case 128:
      return launch_heads<128>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::refine
