// SPDX-License-Identifier: Apache-2.0
#include "select/recover_mma.cuh"

#include "select/recover_rows_mma.cuh"

namespace dosa::select {

cudaError_t launch_recover_mma_fp8(const RecoverParams& params, int padded_heads,
                                   int multiprocessors, cudaStream_t stream) {
  return launch_recover_mma<gpu::PathFp8>(params, padded_heads, multiprocessors, stream);
}

}  // namespace dosa::select
