// SPDX-License-Identifier: Apache-2.0
// Screening with mma.sync: the launches of screen_sm90.cuh for the score models `mma_f16` (sm_80
// and later) and `mma_fp8` (sm_89, sm_120). Masks and bounds have the same layout.
#pragma once

#include "screen/screen_sm90.cuh"

namespace dosa::screen {

cudaError_t launch_screen_mma_f16(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream);
cudaError_t launch_screen_mma_fp8(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream);
cudaError_t launch_bounds_mma_f16(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream);
cudaError_t launch_bounds_mma_fp8(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream);

}  // namespace dosa::screen
