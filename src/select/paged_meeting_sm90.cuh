// SPDX-License-Identifier: Apache-2.0
// How the CTAs of a request meet, and how they agree on the bins in which they count its scores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/ptx_paged_sm90.cuh"
#include "select/paged_resident_sm90.cuh"
#include "select/paged_rounds_sm90.cuh"
#include "select/paged_segment_sm90.cuh"

namespace dosa::select {

constexpr int kSamplingWarps = 4;  // the warpgroup that scores a segment's first tile

/// All consumers call this when what they have to tell is written.
__device__ __forceinline__ void arrive(RequestMeeting& meeting) {
  ScanTeam::sync();
  if (threadIdx.x == 0) gpu::red_release(&meeting.arrivals, 1);
}

/// Waits until all members have arrived for the `number`-th time; all consumers call this.
__device__ __forceinline__ void await(RequestMeeting& meeting, int members, uint32_t number) {
  if (threadIdx.x == 0) {
    while (gpu::load_acquire(&meeting.arrivals) < static_cast<uint32_t>(members) * number) {
    }
  }
  ScanTeam::sync();
}

/// Adds a warp's scores of a row; lanes of a class hold values of the same row.
template <int kClasses>
__device__ __forceinline__ void add_sample(RowSample* sample, bool counts, float score) {
  constexpr float kMostSampled = 1e15f;  // sums of squares stay finite
  counts = counts && fabsf(score) < kMostSampled;
  float sum = counts ? score : 0.0f;
  float squares = __fmul_rn(sum, sum);
  float count = counts ? 1.0f : 0.0f;
#pragma unroll
  for (int step = 16; step >= kClasses; step /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    squares = __fadd_rn(squares, __shfl_xor_sync(0xffffffffu, squares, step));
    count = __fadd_rn(count, __shfl_xor_sync(0xffffffffu, count, step));
  }
  if (sample == nullptr || (static_cast<int>(threadIdx.x) & 31) >= kClasses) return;
  atomicAdd(&sample->sum, sum);
  atomicAdd(&sample->squares, squares);
  atomicAdd(&sample->count, count);
}

__device__ __forceinline__ unsigned long long pack_bins(numeric::ScoreBins bins) {
  return static_cast<unsigned long long>(__float_as_uint(bins.inverse)) << 32 |
         __float_as_uint(bins.low);
}

__device__ __forceinline__ numeric::ScoreBins unpack_bins(unsigned long long packed) {
  return {__uint_as_float(static_cast<uint32_t>(packed)),
          __uint_as_float(static_cast<uint32_t>(packed >> 32))};
}

/// Bins that begin some deviations above the mean, so that few scores need counting, and are so
/// narrow that a winner's bin holds some dozens. Rows of another kind are searched by their bits.
__device__ __forceinline__ numeric::ScoreBins choose_bins(const RowSample& sample, int length,
                                                          int topk) {
  constexpr float kWidth = 10.0f;  // deviations
  constexpr float kLeast = 1e-18f;
  const int64_t share = length / topk;
  const float from = share >= 256 ? 1.5f : (share >= 48 ? 1.0f : 0.0f);
  const float count = __ldcg(&sample.count);
  const float mean = count > 0.0f ? __fdiv_rn(__ldcg(&sample.sum), count) : 0.0f;
  const float square = count > 0.0f ? __fdiv_rn(__ldcg(&sample.squares), count) : 0.0f;
  const float variance = fmaxf(__fsub_rn(square, __fmul_rn(mean, mean)), 0.0f);
  const float deviation = fmaxf(__fsqrt_rn(variance), kLeast);
  return {__fadd_rn(mean, __fmul_rn(from, deviation)),
          __fdiv_rn(kBins - 1, __fmul_rn(kWidth, deviation))};
}

/// The first CTA of a request makes the bins of its rows as soon as all members have sampled. One
/// warp of each CTA calls this, for one round.
__device__ __forceinline__ void publish_bins(const ResidentParams& params, MeetingWalk walk) {
  const int t = static_cast<int>(threadIdx.x) & 31;
  const numeric::PagedStep& step = params.scan.step;
  while (walk.next(step)) {
    if (!walk.leads()) continue;
    const int b = walk.segment.request;
    const auto expected = static_cast<uint32_t>(kSamplingWarps * walk.members());
    if (t < step.next_n) {
      while (gpu::load_acquire(&params.rows.meetings[b].sampled) < expected) {
      }
      RowSample& sample = params.rows.samples[b * step.next_n + t];
      *const_cast<volatile unsigned long long*>(&sample.bins) =
          pack_bins(choose_bins(sample, numeric::row_length(step, b, t), step.topk));
    }
    __syncwarp();
  }
}

/// The bins of a row, which its first CTA publishes.
__device__ __forceinline__ unsigned long long await_bins(const RowSample& sample) {
  unsigned long long packed = 0;
  do {
    packed = *const_cast<const volatile unsigned long long*>(&sample.bins);
  } while (packed == 0);
  return packed;
}

}  // namespace dosa::select
