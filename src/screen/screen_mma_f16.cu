// SPDX-License-Identifier: Apache-2.0
#include "screen/screen_mma.cuh"

#include "screen/bounds_mma.cuh"

namespace dosa::screen {

cudaError_t launch_screen_mma_f16(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream) {
  return launch_width_mma<gpu::PathF16, Sink::kVote>(params, screen_rows, multiprocessors, stream);
}

cudaError_t launch_bounds_mma_f16(const ScreenParams& params, int screen_rows, int multiprocessors,
                                  cudaStream_t stream) {
  return launch_width_mma<gpu::PathF16, Sink::kStore>(params, screen_rows, multiprocessors, stream);
}

}  // namespace dosa::screen
