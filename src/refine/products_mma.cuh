// SPDX-License-Identifier: Apache-2.0
// Dense scoring and refinement with mma.sync: the launches of dense_sm90.cuh and refine_sm90.cuh
// for the score models `mma_f16` (sm_80 and later) and `mma_fp8` (sm_89, sm_120).
#pragma once

#include "refine/dense_sm90.cuh"
#include "refine/refine_sm90.cuh"

namespace dosa::refine {

cudaError_t launch_dense_mma_f16(const DenseParams& params, int padded_heads, Sink sink,
                                 int multiprocessors, cudaStream_t stream);
cudaError_t launch_dense_mma_fp8(const DenseParams& params, int padded_heads, Sink sink,
                                 int multiprocessors, cudaStream_t stream);

/// Guarantee: scores are bit for bit those of launch_dense_mma_* of the same model
cudaError_t launch_refine_mma_f16(const RefineParams& params, int padded_heads, int multiprocessors,
                                  cudaStream_t stream);
cudaError_t launch_refine_mma_fp8(const RefineParams& params, int padded_heads, int multiprocessors,
                                  cudaStream_t stream);

}  // namespace dosa::refine
