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

/// The ring: stage i of `stages` has a tile, its scales, and two barriers.
struct KeyRing {
  uint8_t* keys;  // (stages, 64, D) 128B swizzle
  float* scales;  // (stages, 64)
  uint64_t* full;
  uint64_t* empty;
  int stages;

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
  __device__ __forceinline__ void advance(int stages, int by) {
    stage += by;
    while (stage >= stages) {
      stage -= stages;
      phase ^= 1;
    }
  }
};

/// Pages of a request, 32 blocks at a time and 32 ahead; the whole warp calls this.
struct PageWindow {
  int window = -1;  // first block that `page` holds
  int page = -1;    // of block window + lane
  int ahead = -1;   // of block window + 32 + lane; on its way

  static __device__ __forceinline__ int look_up(const int32_t* table, int block, int blocks) {
    return block < blocks ? table[block] : -1;
  }
  __device__ __forceinline__ void begin() { window = -1; }
  __device__ __forceinline__ int operator()(const int32_t* table, int block, int blocks) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int wanted = block & ~31;
    if (wanted != window) {
      page = window >= 0 && wanted == window + 32 ? ahead : look_up(table, wanted + lane, blocks);
      ahead = look_up(table, wanted + 32 + lane, blocks);
      window = wanted;
    }
    return __shfl_sync(0xffffffffu, page, block - wanted);
  }
};

/// By tensor maps, whole pages or halves of the largest: one warp brings keys, another scales.
struct MappedProducer {
  static constexpr int kWarps = 2;
  static constexpr int kArrivals = kWarps;  // per tile

  static __device__ void run(const ScanParams& params, const KeyRing& ring, SegmentWalk walk,
                             int warp) {
    const numeric::PagedStep& step = params.step;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    constexpr int kTileShift = 6;
    static_assert(1 << kTileShift == numeric::kTokenTile, "tiles are halved by shifts");
    const int shift = min(step.page_shift, kTileShift);  // of the tokens of a box
    const int box = 1 << shift;
    const int token_bytes = warp == 0 ? 128 : 4;
    RingPlace place;
    PageWindow pages;
    Segment segment{};
    while (walk.next(step, segment)) {
      const int length = numeric::scan_length(step, segment.request);
      const int blocks = (length + step.page_size - 1) >> step.page_shift;
      const int32_t* const table = step.table + segment.request * step.table_stride;
      pages.begin();
      for (int tile = segment.first; tile < segment.end; ++tile) {
        const int token = tile * numeric::kTokenTile;
        // Boxes that hold a token.
        const int boxes = min(numeric::kTokenTile, length - token + box - 1) >> shift;
        uint64_t* const full = ring.full + place.stage;
        gpu::barrier_wait(ring.empty + place.stage, place.phase ^ 1);
        if (lane == 0) {
          gpu::barrier_arrive_expect(full, static_cast<uint32_t>(boxes * box * token_bytes));
        }
        for (int i = 0; i < boxes; ++i) {
          const int first = token + i * box;
          const int page = pages(table, first >> step.page_shift, blocks);
          const int within = first & (step.page_size - 1);
          // A page that does not exist reads as zeros.
          if (lane == 0 && warp == 0) {
            gpu::tensor_load(ring.tile(place.stage) + i * box * 128, &params.page_keys, 0, within,
                             page, full);
          }
          if (lane == 0 && warp == 1) {
            gpu::tensor_load(ring.tile_scales(place.stage) + i * box, &params.page_scales, within,
                             page, full);
          }
        }
        __syncwarp();
        place.advance(ring.stages, 1);
      }
    }
  }
};

/// Two warps, key by key: for tokens of a page each and for pages that begin anywhere.
struct GatherProducer {
  static constexpr int kWarps = 2;
  static constexpr int kArrivals = kWarps * 32;
  static constexpr int kLag = 4;  // tiles begun before the oldest is handed over

  static __device__ __forceinline__ void hand_over(const KeyRing& ring, RingPlace& handed) {
    gpu::fence_proxy_async();
    gpu::barrier_arrive(ring.full + handed.stage);
    handed.advance(ring.stages, 1);
  }

  static __device__ void run(const ScanParams& params, const KeyRing& ring, SegmentWalk walk,
                             int warp) {
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
        place.advance(ring.stages, 1);
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
