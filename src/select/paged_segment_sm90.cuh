// SPDX-License-Identifier: Apache-2.0
// What the roles of a scanning CTA know about the segment in work, and how thresholds rise in it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/ptx_paged_sm90.cuh"
#include "numeric/order_sm90.cuh"
#include "numeric/paged_sm90.cuh"
#include "select/paged_scan_sm90.cuh"
#include "select/paged_schedule_sm90.cuh"
#include "select/radix_sm90.cuh"

namespace dosa::select {

constexpr int kScanThreads = 512;  // consumers: four warpgroups
constexpr int kTeamBarrier = 1;    // named barriers 1 to 4 belong to a warpgroup each
constexpr int kScanBarrier = 5;    // all consumers

/// One segment in shared memory.
struct SegmentSlot {
  Segment segment;
  bool end;                                       // no segment: the share is done
  uint32_t* bins;                                 // (next_n, kFloorBins) of the request; null: none
  unsigned long long floor[numeric::kMostNextN];  // only records above can win; never falls
  int length[numeric::kMostNextN];                // 0 for rows without a search
  numeric::RowFloor known[numeric::kMostNextN];   // before the scan
  uint32_t count[numeric::kMostNextN];            // records written
  uint64_t* records;                              // (next_n, capacity)
};

struct ScanTeam {
  static __device__ __forceinline__ void sync() {
    gpu::named_barrier_sync(kScanBarrier, kScanThreads);
  }
};

template <class V>
__device__ __forceinline__ V read_volatile(const V& value) {
  return *const_cast<const volatile V*>(&value);
}

/// Publishes a segment's rows; one warp calls this. Floors are written by the grid before.
__device__ __forceinline__ void fill_slot(const ScanParams& params, const Segment& segment,
                                          SegmentSlot& slot) {
  const numeric::PagedStep& step = params.step;
  const int t = static_cast<int>(threadIdx.x) & 31;
  if (t < numeric::kMostNextN) {
    const int length = t < step.next_n ? numeric::row_length(step, segment.request, t) : 0;
    numeric::RowFloor floor{0, 0.0f};
    if (t < step.next_n && params.floors != nullptr) {
      floor = params.floors[static_cast<int64_t>(segment.request) * step.next_n + t];
    }
    slot.floor[t] = numeric::floor_below(floor.code);
    slot.known[t] = floor;
    slot.length[t] = numeric::is_short(step, length) ? 0 : length;
    slot.count[t] = 0;
  }
  if (t != 0) return;
  slot.segment = segment;
  slot.end = false;
  slot.bins = nullptr;
  const int64_t number = static_cast<int64_t>(segment.request) + blockIdx.x;
  slot.records = params.found.records + number * step.next_n * params.found.capacity;
  if (params.bins == nullptr) return;
  slot.bins =
      params.bins + static_cast<int64_t>(segment.request) * step.next_n * numeric::kFloorBins;
}

/// Keeps the records of a row that reach `bound`, in place; all consumers call this.
/// Leaves how many in radix.cursor and the least of them in radix.least.
__device__ __forceinline__ void compact_row(RadixShared& radix, uint64_t* records, int count,
                                            uint64_t bound) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  if (thread == 0) {
    radix.cursor = 0;
    radix.least = ~0ull;
  }
  uint64_t least = ~uint64_t{0};
  for (int start = 0; start < count; start += kScanThreads) {
    const int i = start + thread;
    const uint64_t record = i < count ? records[i] : 0;
    const bool keep = i < count && record >= bound;
    ScanTeam::sync();  // what is written below lies before what is read next
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    uint32_t base = 0;
    if (lane == 0 && votes != 0) base = atomicAdd(&radix.cursor, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (!keep) continue;
    records[base + __popc(votes & ((1u << lane) - 1))] = record;
    least = record < least ? record : least;
  }
  __syncwarp();
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, least, step);
    least = other < least ? other : least;
  }
  if (lane == 0) atomicMin(&radix.least, static_cast<unsigned long long>(least));
  ScanTeam::sync();
}

/// Brings a row of the segment back to its K best records; all consumers call this.
__device__ __forceinline__ void reduce_row(RadixShared& radix, SegmentSlot& slot, int t,
                                           uint64_t* records, int topk) {
  const int count = static_cast<int>(slot.count[t]);
  const uint64_t bound = rank_bound<kScanThreads, ScanTeam>(radix, records, count, topk);
  compact_row(radix, records, count, bound);
  if (threadIdx.x == 0) {
    atomicMax(&slot.floor[t], radix.least);
    slot.count[t] = static_cast<uint32_t>(topk);
  }
  ScanTeam::sync();
}

/// Raises a row's floor to the highest bin that, with those above it, has counted K records of the
/// whole request; one warp calls this.
/// Guarantee: each record was counted once, and for a token of its own (E2)
__device__ __forceinline__ void raise_floor(SegmentSlot& slot, const uint32_t* bins, int t,
                                            int topk) {
  constexpr int kPerLane = numeric::kFloorBins / 32;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  // Lane 0 has the highest bins.
  const uint32_t* const own = bins + (31 - lane) * kPerLane;
  uint32_t counts[kPerLane];
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; i += 4) {
    const uint4 four = __ldcg(reinterpret_cast<const uint4*>(own + i));
    counts[i] = four.x;
    counts[i + 1] = four.y;
    counts[i + 2] = four.z;
    counts[i + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  uint32_t upto = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
  }
  const uint32_t needed = static_cast<uint32_t>(topk);
  if (upto < needed || upto - sum >= needed) return;
  uint32_t above = upto - sum;
  int bin = -1;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i) {
    above += counts[i];
    if (bin < 0 && above >= needed) bin = i;
  }
  const float edge = numeric::bin_edge(slot.known[t].bins(), (31 - lane) * kPerLane + bin);
  const uint64_t floor = numeric::floor_below(numeric::order_code(edge));
  atomicMax(&slot.floor[t], static_cast<unsigned long long>(floor));
}

/// Drops the records of a segment that the request's bins meanwhile prove out. A short segment is
/// scanned before its floors can rise; without this the selection would go through all it found.
/// All consumers call this when they are through with the segment.
__device__ __forceinline__ void filter_segment(const ScanParams& params, RadixShared& radix,
                                               SegmentSlot& slot) {
  constexpr uint32_t kWorthFiltering = 256;  // records
  constexpr int kManySegments = 8;           // of a request: each CTA has few of its winners
  const Segment& segment = slot.segment;
  if (slot.bins == nullptr ||
      (segment.end - segment.first) * kManySegments > segment.request_tiles) {
    return;
  }
  for (int t = 0; t < params.step.next_n; ++t) {
    const uint32_t count = slot.count[t];
    if (count < kWorthFiltering) continue;
    if (threadIdx.x < 32) {
      raise_floor(slot, slot.bins + t * numeric::kFloorBins, t, params.step.topk);
    }
    ScanTeam::sync();
    const uint64_t bound = read_volatile(slot.floor[t]) + 1;
    compact_row(radix, slot.records + static_cast<int64_t>(t) * params.found.capacity,
                static_cast<int>(count), bound);
    if (threadIdx.x == 0) slot.count[t] = radix.cursor;
    ScanTeam::sync();
  }
}

}  // namespace dosa::select
