// SPDX-License-Identifier: Apache-2.0
// What each row took, counted on the device when asked for; nothing of it steers the call.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dosa/dosa.h"
#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"
#include "screen/survivors_sm90.cuh"

namespace dosa::select {

/// What is remembered of a row between two looks at it.
struct RowTrace {
  double threshold_sum;  // of the screened keys' thresholds
  uint64_t floor;        // floor_record at the last look
  uint32_t kept;         // records after the last reduction
};

struct ReportParams {
  numeric::RowState rows;
  dosa_row_stats* stats;  // (rows)
  RowTrace* traces;       // (rows)
  gpu::Round round;       // what was just scored; kind is not used
  screen::SurvivorLists lists;
  const int* chosen;  // R' in device memory; null: screen_rows
  int screen_rows;    // 0: nothing was screened in this round
  int heads;
  int topk;
};

/// Rows as they are before the first round.
cudaError_t launch_report_begin_sm90(const ReportParams& params, cudaStream_t stream);

/// After a round, before its reduction: keys screened and scored, records, thresholds.
cudaError_t launch_report_round_sm90(const ReportParams& params, cudaStream_t stream);

/// After a reduction: how often the floor rose.
cudaError_t launch_report_reduced_sm90(const ReportParams& params, cudaStream_t stream);

/// Before recovery: the rows that are scored again.
cudaError_t launch_report_lost_sm90(const ReportParams& params, cudaStream_t stream);

/// After the answers, with kth_score set: the means. With `sums` not null adds the rows to it.
cudaError_t launch_report_end_sm90(const ReportParams& params, dosa_stats* sums,
                                   cudaStream_t stream);

/// Zeros `sums`, or turns its sums into means.
cudaError_t launch_report_sums_sm90(dosa_stats* sums, bool finished, cudaStream_t stream);

}  // namespace dosa::select
