// SPDX-License-Identifier: Apache-2.0
// Who scans what: an even cut of all tiles of all requests, found on the device from their lengths.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/paged_sm90.cuh"

namespace dosa::select {

__device__ __forceinline__ int tiles_of(const numeric::PagedStep& step, int b) {
  return (numeric::scan_length(step, b) + numeric::kTokenTile - 1) / numeric::kTokenTile;
}

/// Tiles [first, end) of a request.
struct Segment {
  int request;
  int first;
  int end;
  int request_tiles;
};

/// Goes through a CTA's share, segment by segment.
struct SegmentWalk {
  int request;
  int first;  // tile of the request
  int left;   // tiles of the share

  __device__ __forceinline__ bool next(const numeric::PagedStep& step, Segment& segment) {
    while (left > 0) {
      const int tiles = tiles_of(step, request);
      if (first < tiles) {
        const int take = tiles - first < left ? tiles - first : left;
        segment = {request, first, first + take, tiles};
        left -= take;
        first += take;
        return true;
      }
      first = 0;
      ++request;
    }
    return false;
  }
};

struct ScheduleShared {
  int64_t warp_sums[32];
  SegmentWalk start;
};

/// This CTA's share; the whole CTA of kThreads calls this once, which also synchronises it.
template <int kThreads>
__device__ SegmentWalk find_share(const numeric::PagedStep& step, ScheduleShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int each = (step.batch + kThreads - 1) / kThreads;
  const int begin = thread * each < step.batch ? thread * each : step.batch;
  const int end = begin + each < step.batch ? begin + each : step.batch;
  int64_t own = 0;
  for (int b = begin; b < end; ++b) own += tiles_of(step, b);
  int64_t upto = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
    if (lane >= distance) upto += other;
  }
  if (lane == 31) shared.warp_sums[thread / 32] = upto;
  if (thread == 0) shared.start = {0, 0, 0};
  __syncthreads();
  int64_t total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    if (warp < thread / 32) upto += shared.warp_sums[warp];
    total += shared.warp_sums[warp];
  }
  // Every CTA that takes part has a tile, so that a request's CTAs are all those between two.
  const int64_t ctas = total < gridDim.x ? total : gridDim.x;
  const int64_t cta = blockIdx.x;
  if (cta < ctas) {
    const int64_t from = total * cta / ctas;
    const int64_t to = total * (cta + 1) / ctas;
    int64_t before = upto - own;
    if (before <= from && from < upto) {
      int b = begin;
      for (; b < end; ++b) {
        const int tiles = tiles_of(step, b);
        if (from < before + tiles) break;
        before += tiles;
      }
      shared.start = {b, static_cast<int>(from - before), static_cast<int>(to - from)};
    }
  }
  __syncthreads();
  return shared.start;
}

}  // namespace dosa::select
