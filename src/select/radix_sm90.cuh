// SPDX-License-Identifier: Apache-2.0
// Exact selection among the records of one row, by one team of threads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dosa::select {

constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;

/// The threads that select together: all of the CTA, numbered from 0. Another team, with a barrier
/// of its own, may take their place.
struct WholeCta {
  static __device__ __forceinline__ void sync() { __syncthreads(); }
};

struct RadixShared {
  uint32_t histogram[kBins];
  uint32_t warp_sums[32];
  unsigned long long bits_or;
  unsigned long long bits_and;
  unsigned long long least;
  uint32_t bin;
  uint32_t needed;
  uint32_t in_bin;
  uint32_t cursor;
};

/// Finds the bin that holds the `needed`-th largest record; the whole team calls this.
template <int kThreads, class Team = WholeCta>
__device__ void find_bin(RadixShared& shared, uint32_t needed) {
  static_assert(kBins % kThreads == 0 && kThreads % 32 == 0, "threads share the bins evenly");
  constexpr int kPerThread = kBins / kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  // Thread 0 owns the highest bins, so that a prefix sum counts the records above.
  const int first = kBins - 1 - thread * kPerThread;
  uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) own += shared.histogram[first - i];
  uint32_t upto = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) shared.warp_sums[thread / 32] = upto;
  Team::sync();
  uint32_t above = upto - own;
  for (int warp = 0; warp < thread / 32; ++warp) above += shared.warp_sums[warp];
  if (above < needed && needed <= above + own) {
    for (int i = 0; i < kPerThread; ++i) {
      const uint32_t here = shared.histogram[first - i];
      if (needed <= above + here) {
        shared.bin = static_cast<uint32_t>(first - i);
        shared.needed = needed - above;
        shared.in_bin = here;
        break;
      }
      above += here;
    }
  }
  Team::sync();
}

/// A bound that exactly `rank` of the `count` distinct records reach; the whole team calls this.
/// 1 <= rank <= count. Records may lie in shared or global memory.
template <int kThreads, class Team = WholeCta>
__device__ uint64_t rank_bound(RadixShared& shared, const uint64_t* records, int count, int rank) {
  const int thread = static_cast<int>(threadIdx.x);
  if (rank == count) return 0;
  if (thread == 0) {
    shared.bits_or = 0;
    shared.bits_and = ~0ull;
  }
  Team::sync();
  uint64_t bits_or = 0;
  uint64_t bits_and = ~uint64_t{0};
  for (int i = thread; i < count; i += kThreads) {
    bits_or |= records[i];
    bits_and &= records[i];
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    bits_or |= __shfl_xor_sync(0xffffffffu, bits_or, step);
    bits_and &= __shfl_xor_sync(0xffffffffu, bits_and, step);
  }
  if ((thread & 31) == 0) {
    atomicOr(&shared.bits_or, bits_or);
    atomicAnd(&shared.bits_and, bits_and);
  }
  Team::sync();
  // All records agree above the highest bit in which two of them differ.
  const uint64_t differ = shared.bits_or ^ shared.bits_and;
  int top = 64 - __clzll(static_cast<long long>(differ));  // bits not yet decided
  uint64_t prefix = top == 64 ? 0 : shared.bits_and >> top << top;
  uint32_t needed = static_cast<uint32_t>(rank);
  while (top > 0) {
    const int shift = top > kDigitBits ? top - kDigitBits : 0;
    const uint32_t mask = (1u << (top - shift)) - 1;
    for (int i = thread; i < kBins; i += kThreads) shared.histogram[i] = 0;
    Team::sync();
    for (int i = thread; i < count; i += kThreads) {
      const uint64_t record = records[i];
      const bool match = top == 64 || record >> top == prefix >> top;
      if (match) atomicAdd(&shared.histogram[static_cast<uint32_t>(record >> shift) & mask], 1u);
    }
    Team::sync();
    find_bin<kThreads, Team>(shared, needed);
    prefix |= static_cast<uint64_t>(shared.bin) << shift;
    needed = shared.needed;
    const bool whole = shared.in_bin == needed;
    top = shift;
    Team::sync();
    if (whole) break;
  }
  return prefix;
}

/// Copies the records that reach `bound` to `kept` (any order); returns the least of them.
/// The whole team calls this; `kept` must not overlap `records` before a barrier has passed.
template <int kThreads, class Team = WholeCta>
__device__ uint64_t keep_records(RadixShared& shared, const uint64_t* records, int count,
                                 uint64_t bound, uint64_t* kept) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  if (thread == 0) {
    shared.cursor = 0;
    shared.least = ~0ull;
  }
  Team::sync();
  uint64_t least = ~uint64_t{0};
  for (int start = 0; start < count; start += kThreads) {
    const int i = start + thread;
    const uint64_t record = i < count ? records[i] : 0;
    const bool keep = i < count && record >= bound;
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    uint32_t base = 0;
    if (lane == 0 && votes != 0) base = atomicAdd(&shared.cursor, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) {
      kept[base + __popc(votes & ((1u << lane) - 1))] = record;
      least = record < least ? record : least;
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, least, step);
    least = other < least ? other : least;
  }
  if (lane == 0) atomicMin(&shared.least, static_cast<unsigned long long>(least));
  Team::sync();
  return shared.least;
}

/// Sorts `size` (a power of two) keys in shared memory, ascending; the whole team calls this.
template <int kThreads, class Team = WholeCta>
__device__ void sort_ascending(uint64_t* keys, int size) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      Team::sync();
      for (int i = thread; i < size / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1));
        const int high = low + step;
        const bool ascending = (low & width) == 0;
        const uint64_t a = keys[low];
        const uint64_t b = keys[high];
        if ((a > b) == ascending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  Team::sync();
}

}  // namespace dosa::select
