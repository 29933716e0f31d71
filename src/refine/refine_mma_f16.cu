// SPDX-License-Identifier: Apache-2.0
#include "refine/products_mma.cuh"
#include "refine/refine_mma.cuh"

namespace dosa::refine {

cudaError_t launch_refine_mma_f16(const RefineParams& params, int padded_heads, int multiprocessors,
                                  cudaStream_t stream) {
  return launch_refine_mma<gpu::PathF16>(params, padded_heads, multiprocessors, stream);
}

}  // namespace dosa::refine
