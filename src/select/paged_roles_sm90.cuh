// SPDX-License-Identifier: Apache-2.0
// What the CTAs of all scans have in common: shared memory, barriers, the warp that prepares the
// columns of the next segment, and the product of a tile of keys with them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "refine/paged_operands_sm90.cuh"
#include "select/paged_producer_sm90.cuh"
#include "select/paged_schedule_sm90.cuh"
#include "select/paged_segment_sm90.cuh"

namespace dosa::select {

constexpr int kMostSlots = 2;  // segments whose columns are in shared memory
constexpr int kTeams = kScanThreads / 128;
constexpr int kColumnWarp = 2;  // warps of the last warpgroup; the first ones produce
constexpr int kSpareWarp = 3;
constexpr int kRoleThreads = kScanThreads + 128;
// A wait tells two phases apart, so whoever waits for a stage must see all of its phases.
static_assert(kRingStages % kTeams == 0, "a stage always has the same warpgroup");

struct alignas(128) RoleControl {
  uint64_t keys_full[kRingStages];
  uint64_t keys_empty[kRingStages];
  uint64_t columns_full[kMostSlots];
  uint64_t columns_empty[kMostSlots];
  SegmentSlot slots[kMostSlots];
};

/// The parts of shared memory; how many tiles and columns there are depends on the call.
/// A scan C names its column tile T and its Control, which begins with a RoleControl.
template <class C>
struct Memory {
  using Control = typename C::Control;
  KeyRing ring;
  uint8_t* columns;  // (slots, columns, D) 128B swizzle
  float* weights;    // (slots, column tiles, 4, kClassStride)
  Control* control;
  uint32_t* rest;    // what the scan itself asked for, aligned to 16 bytes
  int column_bytes;  // of a slot
  int weight_floats;
  int slots;

  static_assert(sizeof(Control) % 128 == 0, "scales follow it, which the copy engine writes");

  static __host__ __device__ int bytes(int slots, int tiles) {
    return kRingStages * numeric::kTokenTile * (128 + 4) + static_cast<int>(sizeof(Control)) +
           slots * tiles * (C::T::kBytes + C::T::kWeightFloats * 4);
  }
  __device__ Memory(const ScanParams& params, uint8_t* base) {
    const int tiles = refine::column_tiles<typename C::T>(params.step.next_n);
    slots = params.slots;
    column_bytes = tiles * C::T::kBytes;
    weight_floats = tiles * C::T::kWeightFloats;
    ring.keys = base;
    columns = ring.keys + kRingStages * numeric::kTokenTile * 128;
    control = reinterpret_cast<Control*>(columns + slots * column_bytes);
    ring.scales = reinterpret_cast<float*>(control + 1);
    weights = ring.scales + kRingStages * numeric::kTokenTile;
    rest = reinterpret_cast<uint32_t*>(weights + slots * weight_floats);
    ring.full = control->keys_full;
    ring.empty = control->keys_empty;
  }
};

/// Which slot a role is at.
struct SlotPlace {
  int slot = 0;
  uint32_t phase = 0;
  uint32_t number = 0;  // segments before
  __device__ __forceinline__ void advance(int slots) {
    ++number;
    if (++slot < slots) return;
    slot = 0;
    phase ^= 1;
  }
};

template <class C, class Walk>
__device__ void prepare_columns(const ScanParams& params, const Memory<C>& memory, Walk walk) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  SlotPlace place;
  Segment segment{};
  bool waited = false;
  for (;;) {
    const bool more = walk.next(params.step, segment);
    SegmentSlot& slot = memory.control->slots[place.slot];
    gpu::barrier_wait(memory.control->columns_empty + place.slot, place.phase ^ 1);
    if (more) {
      refine::load_columns<typename C::T>(
          params.step, segment.request, memory.columns + place.slot * memory.column_bytes,
          memory.weights + place.slot * memory.weight_floats, lane, 32);
      gpu::copy_async_commit();
    }
    if (!waited) gpu::grid_dependency_wait();
    waited = true;
    if (more) {
      fill_slot(params, segment, slot);
    } else if (lane == 0) {
      slot.end = true;
    }
    gpu::copy_async_wait<0>();
    gpu::fence_proxy_async();
    gpu::barrier_arrive(memory.control->columns_full + place.slot);
    if (!more) return;
    place.advance(memory.slots);
  }
}

/// What a consumer thread knows of a tile.
struct Tile {
  int first_token;
  int lane_row;  // its keys: this one and the eighth after it
  float scales[2];

  __device__ __forceinline__ explicit Tile(int number)
      : first_token(number * numeric::kTokenTile),
        lane_row(static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                 (static_cast<int>(threadIdx.x) & 31) / 4),
        scales{} {}
};

/// Calls sink(scores, first query) for each column tile; hands the stage back as soon as the last
/// product has read it.
template <class C, class Sink>
__device__ __forceinline__ void score_tile(const ScanParams& params, const Memory<C>& memory,
                                           int slot_number, int stage, Tile& tile, Sink sink) {
  using T = typename C::T;
  const int thread = static_cast<int>(threadIdx.x);
  const int c = thread & 3;
  const int tiles = refine::column_tiles<T>(params.step.next_n);
  const uint64_t keys = gpu::matrix_descriptor(memory.ring.tile(stage));
  const uint8_t* const columns = memory.columns + slot_number * memory.column_bytes;
  const float* const weight_rows = memory.weights + slot_number * memory.weight_floats;
  for (int column_tile = 0; column_tile < tiles; ++column_tile) {
    float products[T::kProducts];
    refine::start_products(products, keys,
                           gpu::matrix_descriptor(columns + column_tile * T::kBytes));
    if (column_tile == 0) {
      const float* const scales = memory.ring.tile_scales(stage);
      tile.scales[0] = scales[tile.lane_row];
      tile.scales[1] = scales[tile.lane_row + 8];
    }
    refine::finish_products(products);
    if (column_tile == tiles - 1) {
      __syncwarp();
      if ((thread & 31) == 0) gpu::barrier_arrive(memory.ring.empty + stage);
    }
    float weights[T::kWeights];
    refine::read_class_weights(
        weight_rows + column_tile * T::kWeightFloats + c * refine::kClassStride, weights);
    float scores[T::kQueries][2];
    T::Chain::scores(products, weights, tile.scales, scores);
    sink(scores, column_tile * T::kQueries);
    __syncwarp();
  }
}

/// Barriers, one per thread; the whole CTA is synchronised before anybody uses them.
template <class C>
__device__ void set_up_roles(const ScanParams& params, RoleControl& control) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRingStages) {
    gpu::barrier_init(&control.keys_full[thread], C::Producer::kArrivals);
    gpu::barrier_init(&control.keys_empty[thread], 4);
  }
  if (thread < params.slots) {
    gpu::barrier_init(&control.columns_full[thread], 32);
    gpu::barrier_init(&control.columns_empty[thread], C::kEmptyArrivals);
  }
  if (thread < kRingStages) gpu::fence_barrier_init();
  if (thread == kScanThreads && params.mapped) {
    gpu::prefetch_map(&params.page_keys);
    gpu::prefetch_map(&params.page_scales);
  }
}

}  // namespace dosa::select
