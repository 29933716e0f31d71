// SPDX-License-Identifier: Apache-2.0
// What the kernels of a decode step know about it: queries, lengths, and where tokens lie.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/order_sm90.cuh"

namespace dosa::numeric {

constexpr int kMostNextN = 8;
constexpr int kTokenTile = 64;  // tokens of a tile: the rows of one tensor-core product

/// One step, or a part of its requests; all pointers are device pointers.
struct PagedStep {
  const uint8_t* pages;  // (num_pages): (page_size, 128) e4m3 keys, then (page_size) scales
  int64_t page_stride;
  int num_pages;
  int page_size;
  int page_shift;  // page_size = 1 << page_shift
  int batch;       // requests
  int next_n;      // queries per request; query t of request b is row b * next_n + t
  int heads;       // real ones
  int topk;
  int max_context;   // no more than the block table has room for
  bool per_request;  // lengths: that of the last query, or one per query
  bool score_short;  // rows of at most K tokens are scored as well
  int forced_first;
  int forced_last;
  const int32_t* lengths;
  int64_t lengths_stride;
  const int32_t* table;  // (batch, blocks)
  int64_t table_stride;
  const uint8_t* q;  // (rows, heads, 128) e4m3
  int64_t q_stride;
  const float* weights;  // (rows, heads)
  int64_t weights_stride;
};

/// Tokens that query t of request b sees.
__device__ __forceinline__ int row_length(const PagedStep& step, int b, int t) {
  const int32_t* const lengths = step.lengths + b * step.lengths_stride;
  const int64_t length =
      step.per_request ? static_cast<int64_t>(lengths[0]) - (step.next_n - 1 - t) : lengths[t];
  return static_cast<int>(length < 0 ? 0 : (length > step.max_context ? step.max_context : length));
}

/// Is the row answered without a look at its keys?
__device__ __forceinline__ bool is_short(const PagedStep& step, int length) {
  return length == 0 || (length <= step.topk && !step.score_short);
}

/// Tokens of request b that some of its rows have to score.
__device__ __forceinline__ int scan_length(const PagedStep& step, int b) {
  int longest = 0;
#pragma unroll 1
  for (int t = 0; t < step.next_n; ++t) {
    const int length = row_length(step, b, t);
    if (!is_short(step, length) && length > longest) longest = length;
  }
  return longest;
}

/// The page of a token's block, or -1 where the table holds none that exists.
__device__ __forceinline__ int page_of(const PagedStep& step, int b, int block) {
  const int page = step.table[b * step.table_stride + block];
  return page >= 0 && page < step.num_pages ? page : -1;
}

/// Even bins of scores from `low` on, the last one open: bin floor((score - low) * inverse), as
/// fp32 computes it. Rounding keeps order, so bins do. NaN and undefined differences are in bin 0.
struct ScoreBins {
  float low;
  float inverse;  // bins per unit
};

__device__ __forceinline__ int bin_of(ScoreBins bins, float score, int last) {
  const float place = __fmul_rn(__fsub_rn(score, bins.low), bins.inverse);
  return place >= static_cast<float>(last) ? last : __float2int_rz(place);
}

/// No score in `bin` or above is below this: the two roundings of bin_of are taken back, downward.
__device__ __forceinline__ float bin_edge(ScoreBins bins, int bin) {
  if (bin == 0) return bins.low;
  constexpr float kTwoRoundings = 1.0f - 0x1p-21f;
  const float width = __frcp_rd(bins.inverse);
  const float distance = __fmul_rd(__fmul_rd(static_cast<float>(bin), width), kTwoRoundings);
  return __fadd_rd(bins.low, distance);
}

constexpr int kFloorBins = 1024;

/// What the witnesses of a row prove, and the bins in which the scan counts what it finds.
struct RowFloor {
  uint32_t code;  // at least K distinct tokens have this code or a higher one; 0: nothing known
  float inverse;  // of kFloorBins bins from its score to the best witness

  __device__ __forceinline__ ScoreBins bins() const { return {score_of_code(code), inverse}; }
};

/// The record below which nothing of the row can win.
__device__ __forceinline__ uint64_t floor_below(uint32_t code) {
  return code == 0 ? 0 : (static_cast<uint64_t>(code) << 32) - 1;
}

}  // namespace dosa::numeric
