// SPDX-License-Identifier: Apache-2.0
// Bringing the keys of a scan from their pages into a ring of tiles in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/ptx_paged_sm90.cuh"
#include "refine/paged_operands_sm90.cuh"
#include "select/paged_scan_sm90.cuh"
#include "select/paged_schedule_sm90.cuh"

namespace dosa::select {

// More tiles in flight are slower: with 8 all multiprocessors get the same share of the memory.
constexpr int kRingStages = 8;

/// The ring: stage i of kRingStages has a tile, its scales, and two barriers.
struct KeyRing {
  uint8_t* keys;  // (stage, 64, D) 128B swizzle
  float* scales;  // (stage, 64)
  uint64_t* full;
  uint64_t* empty;

  __device__ __forceinline__ uint8_t* tile(int stage) const {
    return keys + stage * numeric::kTokenTile * 128;
  }
  __device__ __forceinline__ float* tile_scales(int stage) const {
    return scales + stage * numeric::kTokenTile;
  }
};

/// Where the ring goes on; counts tiles from the CTA's first.
struct RingPlace {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance(int by) {
    stage += by;
    if (stage < kRingStages) return;
    stage -= kRingStages;
    phase ^= 1;
  }
};

/// By tensor maps, whole pages or halves of the largest. Two lanes of different warps take tiles by
/// turns: one alone would not keep up with the memory.
struct MappedProducer {
  static constexpr int kWarps = 2;
  static constexpr int kArrivals = 1;  // per tile

  template <class Walk>
  static __device__ void run(const ScanParams& params, const KeyRing& ring, Walk walk, int warp) {
    if ((threadIdx.x & 31) != 0) return;
    const numeric::PagedStep& step = params.step;
    RingPlace place;
    place.advance(warp);
    int turn = warp;
    Segment segment{};
    while (walk.next(step, segment)) {
      const int32_t* const table = step.table + segment.request * step.table_stride;
      int tile = segment.first + turn;
      if (step.page_size >= numeric::kTokenTile) {
        const int shift = step.page_shift - kTileShift;  // tiles of a page
        int page = tile < segment.end ? table[tile >> shift] : 0;
        for (; tile < segment.end; tile += kWarps) {
          const int next = tile + kWarps < segment.end ? table[(tile + kWarps) >> shift] : 0;
          uint64_t* const full = ring.full + place.stage;
          gpu::barrier_wait(ring.empty + place.stage, place.phase ^ 1);
          gpu::barrier_arrive_expect(full, numeric::kTokenTile * (128 + 4));
          load(params, ring, place.stage, 0, tile * numeric::kTokenTile & (step.page_size - 1),
               page);
          page = next;
          place.advance(kWarps);
        }
      } else {
        const int length = numeric::scan_length(step, segment.request);
        for (; tile < segment.end; tile += kWarps) {
          load_small(params, ring, place.stage, place.phase, table, tile, length);
          place.advance(kWarps);
        }
      }
      turn = tile - segment.end;
    }
  }

 private:
  static constexpr int kTileShift = 6;
  static_assert(1 << kTileShift == numeric::kTokenTile, "pages are cut into tiles by shifts");

  /// A box to the rows of a tile from `row` on; a page that does not exist reads as zeros.
  static __device__ __forceinline__ void load(const ScanParams& params, const KeyRing& ring,
                                              int stage, int row, int within, int page) {
    uint64_t* const full = ring.full + stage;
    gpu::tensor_load(ring.tile(stage) + row * 128, &params.page_keys, 0, within, page, full);
    gpu::tensor_load(ring.tile_scales(stage) + row, &params.page_scales, within, page, full);
  }

  /// A tile of several pages, those that hold a token.
  static __device__ void load_small(const ScanParams& params, const KeyRing& ring, int stage,
                                    uint32_t phase, const int32_t* table, int tile, int length) {
    const numeric::PagedStep& step = params.step;
    const int token = tile * numeric::kTokenTile;
    const int pages =
        min(numeric::kTokenTile, length - token + step.page_size - 1) >> step.page_shift;
    gpu::barrier_wait(ring.empty + stage, phase ^ 1);
    gpu::barrier_arrive_expect(ring.full + stage,
                               static_cast<uint32_t>(pages << step.page_shift) * (128 + 4));
    for (int i = 0; i < pages; ++i) {
      load(params, ring, stage, i << step.page_shift, 0, table[(token >> step.page_shift) + i]);
    }
  }
};

/// Two warps, key by key: for tokens of a page each and for pages that begin anywhere.
struct GatherProducer {
  static constexpr int kWarps = 2;
  static constexpr int kArrivals = kWarps * 32;
  static constexpr int kLag = 4;  // tiles begun before the oldest is handed over
  static_assert(kLag < kRingStages, "the ring holds what has not been handed over");

  static __device__ __forceinline__ void hand_over(const KeyRing& ring, RingPlace& handed) {
    gpu::fence_proxy_async();
    gpu::barrier_arrive(ring.full + handed.stage);
    handed.advance(1);
  }

  template <class Walk>
  static __device__ void run(const ScanParams& params, const KeyRing& ring, Walk walk, int warp) {
    const numeric::PagedStep& step = params.step;
    const int row = warp * 32 + (static_cast<int>(threadIdx.x) & 31);
    RingPlace place;
    RingPlace handed;
    int pending = 0;
    Segment segment{};
    while (walk.next(step, segment)) {
      const int length = numeric::scan_length(step, segment.request);
      const auto look_up = [&](int token) {
        return token < length ? numeric::page_of(step, segment.request, token >> step.page_shift)
                              : -1;
      };
      int page = look_up(segment.first * numeric::kTokenTile + row);
      for (int tile = segment.first; tile < segment.end; ++tile) {
        const int token = tile * numeric::kTokenTile + row;
        const int next_page = tile + 1 < segment.end ? look_up(token + numeric::kTokenTile) : -1;
        gpu::barrier_wait(ring.empty + place.stage, place.phase ^ 1);
        refine::gather_keys<32>(step, refine::find_key(step, page, token), token,
                                ring.tile(place.stage), ring.tile_scales(place.stage), warp * 32);
        gpu::copy_async_commit();
        place.advance(1);
        page = next_page;
        if (++pending > kLag) {
          gpu::copy_async_wait<kLag>();
          hand_over(ring, handed);
          --pending;
        }
      }
    }
    gpu::copy_async_wait<0>();
    for (; pending > 0; --pending) hand_over(ring, handed);
  }
};

}  // namespace dosa::select
