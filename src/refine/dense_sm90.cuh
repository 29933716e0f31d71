// SPDX-License-Identifier: Apache-2.0
// Dense scoring on sm_90a: every key of a round with every head.
#pragma once

#include "gpu/stationary_params.cuh"
#include "numeric/row_state_sm90.cuh"

namespace dosa::refine {

/// What is done with the scores.
enum class Sink {
  kStore,   // all of them, to memory
  kRecord,  // those that may still be among the K best, as records
  kSample   // none: counts per head how often it is active on the hard keys
};

struct DenseParams : gpu::StationaryParams {
  numeric::RowState rows;
  const float* weights;  // (rows, heads), `weights_stride` apart
  int64_t weights_stride;
  int heads;  // real heads; the rest of the padded ones weigh zero
  int num_keys;
  float* scores;  // kStore: (rows, N), `scores_stride` apart
  int64_t scores_stride;
  const float* hard_floor;  // kSample: a key at or above is hard for its row
  uint32_t* active;         // kSample: (rows, padded heads + 1): active hard keys; last: hard keys
};

/// Scores the places of params.round; `padded_heads` is 32, 64 or 128.
/// Guarantee: scores are those of the `sm90` model (docs/numerics.md), whatever the launch.
/// Error:    cudaError_t of the launch
cudaError_t launch_dense_sm90(const DenseParams& params, int padded_heads, Sink sink,
                              int multiprocessors, cudaStream_t stream);

}  // namespace dosa::refine
