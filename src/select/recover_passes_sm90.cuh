// SPDX-License-Identifier: Apache-2.0
// The passes of recovery, whatever multiplies: which rows are lost, and which are done.
#pragma once

#include "select/recover_sm90.cuh"

namespace dosa::select {

// Without any floor each pass leaves a quarter of the keys: 1M, 256K, 64K, 16K, 4K records.
constexpr int kSplitPasses = 5;
constexpr int kLeastSplitKeys = 256 * 1024;  // below, one multiprocessor takes 2 ms at most
constexpr int kMostSlices = 8;               // between two looks for rows that have overflowed

/// Scores the listed groups as far as params.whole says; the grid has `multiprocessors` CTAs.
using RecoverScorer = cudaError_t (*)(const RecoverParams& params, int multiprocessors,
                                      cudaStream_t stream);

/// Lists the lost rows, has them scored, and begins again with those that overflowed; in the last
/// pass `score` takes each group through all its keys.
/// Error: cudaError_t of the launches
cudaError_t run_recover_passes(const RecoverParams& params, int group_rows, RecoverScorer score,
                               int multiprocessors, cudaStream_t stream);

#ifdef __CUDACC__

__device__ __forceinline__ bool is_lost(const numeric::RowState& rows, int row) {
  return row < rows.rows && (rows.flags[row] & numeric::kRowRecover) != 0;
}

/// A share of the listed work: slices [low, high) of keys of one group after another.
struct RecoverShare {
  int64_t slices;  // of a group
  int64_t at;
  int64_t to;
  int group;
  int low;   // first key
  int high;  // behind the last

  /// This CTA's share in slices of `slice_keys`; empty where other passes are better.
  __device__ __forceinline__ RecoverShare(const RecoverParams& params, int slice_keys) {
    const int groups = params.lost[0];
    slices =
        params.whole ? 1 : (static_cast<int64_t>(params.num_keys) + slice_keys - 1) / slice_keys;
    // Many groups keep all CTAs busy anyway, and each is then read once.
    const bool idle = !params.whole && groups > static_cast<int>(gridDim.x);
    const int64_t total = idle ? 0 : slices * groups;
    at = total * blockIdx.x / gridDim.x;
    to = total * (blockIdx.x + 1) / gridDim.x;
  }

  /// Steps to the next run of slices; false at the end.
  __device__ __forceinline__ bool next(const RecoverParams& params, int slice_keys) {
    if (at >= to) return false;
    const int64_t first = at % slices;
    const int64_t wanted = first + (to - at < kMostSlices ? to - at : kMostSlices);
    const int64_t last = wanted < slices ? wanted : slices;
    const int64_t end = params.whole ? params.num_keys : last * slice_keys;
    group = params.lost[1 + at / slices];
    low = static_cast<int>(first * slice_keys);
    high = static_cast<int>(end < params.num_keys ? end : params.num_keys);
    at += last - first;
    return true;
  }
};

#endif

}  // namespace dosa::select
