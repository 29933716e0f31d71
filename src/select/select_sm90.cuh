// SPDX-License-Identifier: Apache-2.0
// Exact Top-K on sm_90a: of records, of stored scores, and the round reduction that raises floors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dosa/dosa.h"

#include "numeric/row_state_sm90.cuh"
#include "select/optimistic_sm90.cuh"

namespace dosa::select {

constexpr int kMaxTopk = 4096;

/// Where and in which form a row's answer is written; pointers are those of the chunk's first row.
struct OutputForm {
  int32_t* indices;  // (rows, K), `indices_stride` apart
  int64_t indices_stride;
  float* scores;  // may be null
  int64_t scores_stride;
  const int32_t* offset;  // (rows); null: none
  const int32_t* table;   // (rows, pages); null: none
  int64_t table_stride;
  int page_size;
  dosa_row_stats* stats;  // (rows): kth_score is written; null: nothing
  int topk;
  bool relative;  // ids count from the row's (clamped) start
  bool by_score;  // descending score instead of ascending id
};

struct ReduceParams {
  numeric::RowState rows;
  int topk;
  int slack;          // rows whose records grew by fewer than this since the last time are left
  float* hard_floor;  // where not null: the score that a quarter of the records reach
  bool all_hard;      // hard_floor is -Inf instead: every sampled key counts
  bool keep_bound;    // the threshold of screening stays (the paper's fixed one)
  Optimism optimism;
};

/// Keeps the K best records of every row and raises its floors.
/// Guarantee: floor_record is the K-th best of everything recorded so far (E2); rows that lost
///           records are flagged kRowRecover and closed
cudaError_t launch_reduce_sm90(const ReduceParams& params, cudaStream_t stream);

/// Writes the answers of all rows from their records.
cudaError_t launch_finish_sm90(const numeric::RowState& rows, const OutputForm& form,
                               cudaStream_t stream);

/// Writes the answers of all rows from stored scores (rows, N), `stride` (a multiple of 4) apart.
cudaError_t launch_select_scores_sm90(const numeric::RowState& rows, const float* scores,
                                      int64_t stride, int64_t num_keys, const OutputForm& form,
                                      cudaStream_t stream);

}  // namespace dosa::select
