// SPDX-License-Identifier: Apache-2.0
// A step in rounds: so many requests at a time as have room in shared memory, each round cut
// evenly.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "select/paged_schedule_sm90.cuh"

namespace dosa::select {

constexpr int kMostRounds = 32;

/// A CTA's share of a round.
struct RoundShare {
  SegmentWalk walk;
  int64_t total;  // tiles of the round
  int64_t from;   // the first one of this CTA's share
};

/// The share of requests [begin, end); one warp calls this.
__device__ __forceinline__ RoundShare find_round_share(const numeric::PagedStep& step, int begin,
                                                       int end) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int each = (end - begin + 31) / 32;
  const int own_begin = min(begin + lane * each, end);
  const int own_end = min(own_begin + each, end);
  int64_t own = 0;
  for (int b = own_begin; b < own_end; ++b) own += tiles_of(step, b);
  int64_t upto = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, upto, distance);
    if (lane >= distance) upto += other;
  }
  const int64_t total = __shfl_sync(0xffffffffu, upto, 31);
  const int64_t ctas = total < gridDim.x ? total : gridDim.x;
  const int64_t cta = blockIdx.x;
  if (cta >= ctas) return {{begin, 0, 0}, total, 0};
  const int64_t from = total * cta / ctas;
  const int64_t to = total * (cta + 1) / ctas;
  int64_t before = upto - own;
  const bool mine = before <= from && from < upto;
  int b = own_begin;
  if (mine) {
    for (; b < own_end; ++b) {
      const int tiles = tiles_of(step, b);
      if (from < before + tiles) break;
      before += tiles;
    }
  }
  const int owner = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, mine))) - 1;
  const int request = __shfl_sync(0xffffffffu, b, owner);
  const int first = static_cast<int>(from - __shfl_sync(0xffffffffu, before, owner));
  return {{request, first, static_cast<int>(to - from)}, total, from};
}

/// Goes through a CTA's shares of all rounds, segment by segment.
struct RoundsWalk {
  const RoundShare* shares;
  int rounds;
  int round = 0;
  SegmentWalk walk;

  __device__ __forceinline__ RoundsWalk(const RoundShare* shares, int rounds)
      : shares(shares), rounds(rounds), walk(shares[0].walk) {}

  __device__ __forceinline__ bool next(const numeric::PagedStep& step, Segment& segment) {
    while (!walk.next(step, segment)) {
      if (++round == rounds) return false;
      walk = shares[round].walk;
    }
    return true;
  }
};

/// The first and the last CTA of a request whose tiles are [first, first + count) of all `total`.
__device__ __forceinline__ int2 ctas_of(int64_t total, int64_t first, int count) {
  const int64_t ctas = total < gridDim.x ? total : gridDim.x;
  // Tile x belongs to the last CTA whose share begins at or before it.
  return {static_cast<int>(((first + 1) * ctas - 1) / total),
          static_cast<int>(((first + count) * ctas - 1) / total)};
}

/// Goes through a CTA's share of one round and knows who else works on a request.
struct MeetingWalk {
  SegmentWalk walk;
  int64_t total;
  int64_t from;     // tiles of the round before the current segment
  int number = -1;  // segments before
  int place = 0;    // tiles of the share before the segment
  Segment segment{};
  int2 ctas{};  // first and last one of the request

  __device__ __forceinline__ explicit MeetingWalk(const RoundShare& share)
      : walk(share.walk), total(share.total), from(share.from) {}

  __device__ __forceinline__ bool next(const numeric::PagedStep& step) {
    const int done = segment.end - segment.first;
    from += done;
    place += done;
    ++number;
    if (!walk.next(step, segment)) return false;
    ctas = ctas_of(total, from - segment.first, segment.request_tiles);
    return true;
  }
  [[nodiscard]] __device__ __forceinline__ int members() const { return ctas.y - ctas.x + 1; }
  [[nodiscard]] __device__ __forceinline__ bool leads() const { return segment.first == 0; }
};

}  // namespace dosa::select
