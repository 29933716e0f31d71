// SPDX-License-Identifier: Apache-2.0
#include "refine/dense_mma.cuh"
#include "refine/products_mma.cuh"

namespace dosa::refine {

cudaError_t launch_dense_mma_fp8(const DenseParams& params, int padded_heads, Sink sink,
                                 int multiprocessors, cudaStream_t stream) {
  return launch_dense_mma<gpu::PathFp8>(params, padded_heads, sink, multiprocessors, stream);
}

}  // namespace dosa::refine
