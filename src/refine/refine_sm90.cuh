// SPDX-License-Identifier: Apache-2.0
// Refinement on sm_90a: the full score of listed keys, gathered.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/code_rows.hpp"
#include "numeric/row_state_sm90.cuh"
#include "screen/survivors_sm90.cuh"

namespace dosa::refine {

struct RefineParams {
  CUtensorMap queries;       // (rows * padded heads, 128) e4m3, boxes of 128 rows
  gpu::CodeRows query_rows;  // the same, for kernels without tensor maps
  screen::SurvivorLists lists;
  int groups;
  const uint8_t* k;  // (N, D) e4m3, `k_stride` apart
  int64_t k_stride;
  int head_dim;  // D, a multiple of 16; the rest of 128 is read as zeros
  const float* k_scale;
  numeric::RowState rows;
  const float* weights;  // (rows, heads), `weights_stride` apart
  int64_t weights_stride;
  int heads;
};

/// Scores the listed keys for all rows of their group and records those above the floors.
/// Guarantee: scores are bit for bit those of launch_dense_sm90
/// Error:    cudaError_t of the launch
cudaError_t launch_refine_sm90(const RefineParams& params, int padded_heads, int multiprocessors,
                               cudaStream_t stream);

}  // namespace dosa::refine
