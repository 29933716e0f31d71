// SPDX-License-Identifier: Apache-2.0
// The greatest of the order codes that lie in shared memory, visited in the order of their places.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "numeric/order_sm90.cuh"
#include "select/radix_sm90.cuh"

namespace dosa::select {

/// Codes above `least` are taken, and of those equal to it the first `equal` ones.
struct CodeBound {
  uint32_t least;
  int equal;
};

constexpr uint32_t kForcedCode = 0xff800000u;  // of +Inf

/// The codes of scores [keys.x, keys.y) of a row (16-byte aligned, readable up to a multiple of 4);
/// those outside `ranked` are forced. The whole CTA calls this.
template <int kThreads>
__device__ void load_codes(const float* line, int2 keys, int2 ranked, uint32_t* codes) {
  const int aligned = keys.x / 4 * 4;
  for (int first = aligned + static_cast<int>(threadIdx.x) * 4; first < keys.y;
       first += kThreads * 4) {
    const float4 four = *reinterpret_cast<const float4*>(line + first);
    const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first + i;
      if (key < keys.x || key >= keys.y) continue;
      const bool forced = key < ranked.x || key >= ranked.y;
      codes[key - keys.x] = forced ? kForcedCode : numeric::order_code(values[i]);
    }
  }
}

/// The bound that takes exactly `needed` of the codes, 0 < needed < count; the whole CTA calls
/// this.
template <int kThreads>
__device__ CodeBound code_bound(RadixShared& shared, const uint32_t* codes, int count, int needed) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t prefix = 0;
  uint32_t rank = static_cast<uint32_t>(needed);
  for (int top = 32; top > 0;) {
    const int shift = top > kDigitBits ? top - kDigitBits : 0;
    const uint32_t mask = (1u << (top - shift)) - 1;
    for (int i = thread; i < kBins; i += kThreads) shared.histogram[i] = 0;
    __syncthreads();
    for (int i = thread; i < count; i += kThreads) {
      const uint32_t code = codes[i];
      const bool match = top == 32 || code >> top == prefix >> top;
      if (match) atomicAdd(&shared.histogram[code >> shift & mask], 1u);
    }
    __syncthreads();
    find_bin<kThreads>(shared, rank);
    prefix |= shared.bin << shift;
    rank = shared.needed;
    const bool whole = shared.in_bin == rank;
    top = shift;
    __syncthreads();
    if (whole) return {prefix, INT_MAX};
  }
  return {prefix, static_cast<int>(rank)};
}

/// Calls emit(rank, place, code) for each code that the bound takes, its rank among their places;
/// the whole CTA calls this. Every warp has a run of places of its own. count < 2^16
template <int kThreads, class Emit>
__device__ void visit_codes(RadixShared& shared, const uint32_t* codes, int count, CodeBound bound,
                            Emit emit) {
  constexpr int kWarps = kThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int run = (count + kThreads - 1) / kThreads * 32;
  const int begin = warp * run;
  const int end = begin + run < count ? begin + run : count;
  uint32_t own = 0;  // codes above in the low half, equal ones in the high half
  for (int i = begin + lane; i < end; i += 32) {
    own += (codes[i] > bound.least ? 1u : 0u) + (codes[i] == bound.least ? 1u << 16 : 0u);
  }
  own = __reduce_add_sync(0xffffffffu, own);
  if (lane == 0) shared.warp_sums[warp] = own;
  __syncthreads();
  uint32_t before = 0;
  for (int i = 0; i < kWarps; ++i) before += i < warp ? shared.warp_sums[i] : 0;
  int above = static_cast<int>(before & 0xffffu);
  int equal = static_cast<int>(before >> 16);
  for (int from = begin; from < end; from += 32) {
    const int i = from + lane;
    const uint32_t code = i < end ? codes[i] : 0;
    const bool is_above = i < end && code > bound.least;
    const bool is_equal = i < end && code == bound.least;
    const uint32_t votes_above = __ballot_sync(0xffffffffu, is_above);
    const uint32_t votes_equal = __ballot_sync(0xffffffffu, is_equal);
    const uint32_t lower = (1u << lane) - 1;
    const int equal_before = equal + __popc(votes_equal & lower);
    const int taken = equal_before < bound.equal ? equal_before : bound.equal;
    if (is_above || (is_equal && equal_before < bound.equal)) {
      emit(above + __popc(votes_above & lower) + taken, i, code);
    }
    above += __popc(votes_above);
    equal += __popc(votes_equal);
  }
}

}  // namespace dosa::select
