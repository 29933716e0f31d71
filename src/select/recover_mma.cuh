// SPDX-License-Identifier: Apache-2.0
// Recovery with mma.sync: the launch of recover_sm90.cuh for the score models `mma_f16` (sm_80 and
// later) and `mma_fp8` (sm_89, sm_120).
#pragma once

#include "select/recover_sm90.cuh"

namespace dosa::select {

cudaError_t launch_recover_mma_f16(const RecoverParams& params, int padded_heads,
                                   int multiprocessors, cudaStream_t stream);
cudaError_t launch_recover_mma_fp8(const RecoverParams& params, int padded_heads,
                                   int multiprocessors, cudaStream_t stream);

}  // namespace dosa::select
