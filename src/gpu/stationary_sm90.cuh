// SPDX-License-Identifier: Apache-2.0
// Keys streamed past stationary columns: the product pipeline of screening and dense scoring.
//
// One CTA keeps 4 tiles of 96 or 128 columns (query heads or screening rows) in shared memory and
// streams units of 256 keys. Each of four consumer warpgroups owns one tile: it multiplies 64 keys
// at a time with its columns and finishes them while the tensor cores work for the others. What
// belongs to its columns (weights, coefficients) stays in its registers.
#pragma once

#include <cstdint>

#include "gpu/ptx_sm90.cuh"
#include "gpu/stationary_params.cuh"

namespace dosa::gpu {

struct StationaryConfig {
  static constexpr int kHeadBytes = 128;  // one swizzled row
  static constexpr int kColumnTiles = 4;  // a key is read once per 4 tiles of up to 128 columns
  static constexpr int kStages = 4;       // 4 x 32 KiB of keys in flight
  static constexpr int kConsumerThreads = kColumnTiles * 128;
  static constexpr int kThreads =
      kConsumerThreads + 128;  // the producer's group gives up registers
  static constexpr int kConsumerRegisters = 112;
  static constexpr int kProducerRegisters = 32;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;  // what ptxas gives each thread
  static_assert(kConsumerThreads * kConsumerRegisters + 128 * kProducerRegisters <=
                    kThreads * kLaunchRegisters,
                "registers only move inside what the CTA was launched with; more waits for ever");
  static constexpr int kSubTiles = kUnitKeys / 64;
  static constexpr int kUnitBytes = kUnitKeys * kHeadBytes;
};

/// Epilogue::kTileColumns, 96 or 128, is the width of its tiles.
template <class Epilogue>
struct StationaryShared {
  using Config = StationaryConfig;
  static constexpr int kTileBytes = Epilogue::kTileColumns * Config::kHeadBytes;
  alignas(1024) uint8_t columns[Config::kColumnTiles][kTileBytes];  // (columns, D) swizzled
  alignas(1024) uint8_t keys[Config::kStages][Config::kUnitBytes];  // (256, D, stage) swizzled
  alignas(16) float2 meta[Config::kStages][kUnitKeys];
  int unit[Config::kStages];
  uint64_t keys_full[Config::kStages];
  uint64_t keys_empty[Config::kStages];
  uint64_t columns_full;
  uint64_t columns_empty;
  WorkSplit split;
  typename Epilogue::Shared epilogue[Config::kColumnTiles];
};

/// One elected thread: loads the columns of each segment and streams its units.
template <class Epilogue>
__device__ void stationary_producer(const typename Epilogue::Params& params,
                                    StationaryShared<Epilogue>& shared, int64_t from, int64_t to) {
  using Config = StationaryConfig;
  uint32_t filled = 0;
  uint32_t segments = 0;
  while (from < to) {
    const Segment segment = shared.split.at(params.round, from, to);
    const KeyOrder order = params.round.orders[segment.block];
    barrier_wait(&shared.columns_empty, (segments & 1) ^ 1);
    barrier_arrive_expect(&shared.columns_full,
                          Config::kColumnTiles * StationaryShared<Epilogue>::kTileBytes);
    const int first = (segment.block * params.round.columns + segment.column) *
                      Config::kColumnTiles * Epilogue::kTileColumns;
    for (int tile = 0; tile < Config::kColumnTiles; ++tile) {
      tensor_load(shared.columns[tile], &params.columns, 0, first + tile * Epilogue::kTileColumns,
                  &shared.columns_full);
    }
    for (int i = 0; i < segment.count; ++i, ++filled) {
      const uint32_t stage = filled % Config::kStages;
      barrier_wait(&shared.keys_empty[stage], ((filled / Config::kStages) & 1) ^ 1);
      const int unit = unit_at(order, segment.begin + i);
      shared.unit[stage] = unit;
      barrier_arrive_expect(&shared.keys_full[stage],
                            Config::kUnitBytes + kUnitKeys * sizeof(float2));
      tensor_load(shared.keys[stage], &params.keys, 0, unit * kUnitKeys, &shared.keys_full[stage]);
      bulk_load(shared.meta[stage], params.key_meta + static_cast<int64_t>(unit) * kUnitKeys,
                kUnitKeys * sizeof(float2), &shared.keys_full[stage]);
    }
    from += segment.count;
    ++segments;
  }
}

/// One warpgroup's products of 64 keys and a tile of columns: four k-steps of 32.
template <int kCount>
__device__ __forceinline__ void issue_products(float (&accumulators)[kCount], uint64_t keys,
                                               uint64_t columns) {
  constexpr int kSteps = StationaryConfig::kHeadBytes / 32;
  pin_registers(accumulators);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    wgmma_k32(accumulators, keys + step * 2, columns + step * 2, step != 0);
  }
  wgmma_commit();
}

template <class Epilogue>
__device__ KeyPair read_key_pair(const StationaryShared<Epilogue>& shared, uint32_t stage,
                                 int place, int unit_row) {
  KeyPair keys;
  keys.place = place;
  keys.unit_row = unit_row;
  keys.key = shared.unit[stage] * kUnitKeys + unit_row;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 meta = shared.meta[stage][unit_row + 8 * half];
    keys.scale[half] = meta.x;
    keys.norm[half] = meta.y;
  }
  return keys;
}

/// A consumer warpgroup: all keys of its segments against its own tile of columns.
template <class Epilogue>
__device__ void stationary_consumer(const typename Epilogue::Params& params,
                                    StationaryShared<Epilogue>& shared, int64_t from, int64_t to) {
  using Config = StationaryConfig;
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = __shfl_sync(0xffffffffu, thread / 128, 0);
  const int lane_row = (thread % 128) / 32 * 16 + (thread & 31) / 4;
  const uint64_t columns = matrix_descriptor(shared.columns[tile]);
  float products[Epilogue::kTileColumns / 2];
  uint32_t used = 0;
  uint32_t segments = 0;
  while (from < to) {
    const Segment segment = shared.split.at(params.round, from, to);
    Epilogue epilogue;
    named_barrier_sync(1 + tile, 128);  // the warpgroup is done with the last segment's rows
    epilogue.begin_segment(params, shared.epilogue[tile], segment, tile);
    named_barrier_sync(1 + tile, 128);
    barrier_wait(&shared.columns_full, segments & 1);
    for (int i = 0; i < segment.count; ++i, ++used) {
      const uint32_t stage = used % Config::kStages;
      barrier_wait(&shared.keys_full[stage], (used / Config::kStages) & 1);
#pragma unroll 1
      for (int sub = 0; sub < Config::kSubTiles; ++sub) {
        issue_products(products,
                       matrix_descriptor(shared.keys[stage] + sub * 64 * Config::kHeadBytes),
                       columns);
        const KeyPair pair =
            read_key_pair<Epilogue>(shared, stage, segment.begin + i, sub * 64 + lane_row);
        wgmma_wait<0>();
        pin_registers(products);
        if (sub == Config::kSubTiles - 1) barrier_arrive(&shared.keys_empty[stage]);
        epilogue.finish(params, shared.epilogue[tile], segment, products, pair);
      }
    }
    barrier_arrive(&shared.columns_empty);
    epilogue.end_segment(params);
    from += segment.count;
    ++segments;
  }
}

template <class Epilogue>
__global__ void __launch_bounds__(StationaryConfig::kThreads, 1)
    stationary_sm90_e4m3_kernel(const __grid_constant__ typename Epilogue::Params params) {
  using Config = StationaryConfig;
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<StationaryShared<Epilogue>*>(shared_bytes);
  if (params.chosen != nullptr && *params.chosen != params.variant) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      barrier_init(&shared.keys_full[stage], 1);
      barrier_init(&shared.keys_empty[stage], Config::kConsumerThreads);
    }
    barrier_init(&shared.columns_full, 1);
    barrier_init(&shared.columns_empty, Config::kConsumerThreads);
    fence_barrier_init();
  }
  if (thread / 32 == 1) shared.split.prepare(params.round);
  __syncthreads();
  const int64_t total = shared.split.total(params.round);
  const int64_t from = total * blockIdx.x / gridDim.x;
  const int64_t to = total * (blockIdx.x + 1) / gridDim.x;
  if (thread >= Config::kConsumerThreads) {
    registers_shrink<Config::kProducerRegisters>();
    if (thread == Config::kConsumerThreads) {
      prefetch_map(&params.keys);
      prefetch_map(&params.columns);
      stationary_producer<Epilogue>(params, shared, from, to);
    }
  } else {
    registers_grow<Config::kConsumerRegisters>();
    stationary_consumer<Epilogue>(params, shared, from, to);
  }
}

/// Launches a kernel of this shape with one CTA per multiprocessor.
template <class Epilogue>
cudaError_t launch_stationary_sm90(const typename Epilogue::Params& params, int multiprocessors,
                                   cudaStream_t stream) {
  constexpr int kBytes = sizeof(StationaryShared<Epilogue>);
  constexpr int kMostBytes = 232448;  // 227 KiB, what one block may use on sm_90
  static_assert(kBytes <= kMostBytes, "the stages and the epilogue fit one multiprocessor");
  const auto kernel = stationary_sm90_e4m3_kernel<Epilogue>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors, StationaryConfig::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace dosa::gpu
