// SPDX-License-Identifier: Apache-2.0
// The K best of lists of scored keys on a device, a CTA per row (E17).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dosa::select {

constexpr int kMaxMergedLists = 256;

/// Lists of scored keys for each row, as dosa_candidates describes them, and where the answer goes.
struct MergeParams {
  const float* scores;
  const int32_t* ids;
  const int64_t* offsets;  // (lists, rows + 1); null: padded
  int64_t list_stride;
  int64_t row_stride;
  int64_t rows;
  int lists;  // at most kMaxMergedLists
  int width;  // entries of a padded list
  int topk;   // at most kMaxTopk
  int room;   // entries held at a time; 0: chosen by the launch
  bool by_score;
  int32_t* indices;  // (rows, K), `indices_stride` apart
  int64_t indices_stride;
  float* out_scores;  // may be null
  int64_t scores_stride;
};

/// The largest K that the current device has shared memory for.
cudaError_t most_merged_topk(int& topk);

/// The K best keys of every row, each once with its best score; -1 and NaN behind the last.
/// Lists may be in any order; an entry with a negative id ends its list.
cudaError_t launch_merge_sm90(const MergeParams& params, cudaStream_t stream);

}  // namespace dosa::select
