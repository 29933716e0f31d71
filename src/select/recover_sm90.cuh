// SPDX-License-Identifier: Apache-2.0
// The last resort on sm_90a: rows whose records were lost are scored again, all visible keys.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/code_rows.hpp"
#include "numeric/row_state_sm90.cuh"

namespace dosa::select {

struct RecoverParams {
  CUtensorMap keys;        // (N, 128) e4m3, boxes of 256 rows
  CUtensorMap queries;     // (rows * padded heads, 128) e4m3, boxes of 128 rows
  gpu::CodeRows key_rows;  // both again, for kernels without tensor maps
  gpu::CodeRows query_rows;
  const float* k_scale;
  int num_keys;
  numeric::RowState rows;
  const float* weights;  // (rows, heads), `weights_stride` apart
  int64_t weights_stride;
  int heads;
  int topk;
  unsigned long long* recovered;  // rows that were recovered, statistics
  int* lost;                      // (groups + 1): how many groups have lost rows, and which
  bool whole;                     // set by the launch: a CTA takes a group through all its keys
};

/// Fills the records of every row flagged kRowRecover; they hold its K best afterwards.
/// Guarantee: nothing is lost: a row's records are reduced before a step could overflow them
/// Units/cost: a few launches that end at once where no row is flagged
cudaError_t launch_recover_sm90(const RecoverParams& params, int padded_heads, int multiprocessors,
                                cudaStream_t stream);

}  // namespace dosa::select
