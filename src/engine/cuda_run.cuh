// SPDX-License-Identifier: Apache-2.0
// The launches of one call on the device.
#ifndef DOSA_ENGINE_CUDA_RUN_CUH
#define DOSA_ENGINE_CUDA_RUN_CUH

#include <cuda_runtime_api.h>

#include <cstdint>

#include "dosa/dosa.h"

namespace dosa::engine {

/// Told before each step what is enqueued next ("plan", "screen", ...; "end" last), so that a
/// measurement can place its events.
struct PhaseHook {
  void (*mark)(void* user, const char* phase) = nullptr;
  void* user = nullptr;
};

/// Enqueues the Top-K of all rows. All arguments are valid; `workspace` holds the shape's buffers.
/// Throws: gpu::CudaError where a launch fails
void cuda_topk(const dosa_problem& problem, const dosa_options& options, const dosa_output& output,
               void* workspace, cudaStream_t stream, PhaseHook hook = {});

/// What cuda_screen_rows returns where a call chooses between several widths, or none, by what it
/// sees.
constexpr int kChosenOnDevice = -1;

/// Screening rows R' per query; 0 where the options screen nothing at this shape.
int cuda_screen_rows(const dosa_problem& problem, const dosa_options& options);

/// Enqueues the scores of rows [row_begin, row_end). Throws: gpu::CudaError where a launch fails
void cuda_scores(const dosa_problem& problem, const dosa_options& options, int64_t row_begin,
                 int64_t row_end, float* scores, int64_t scores_stride, void* workspace,
                 cudaStream_t stream);

/// The bound that screening compares, and the part of it that is allowance (E |k| + C) k_scale.
struct KeyBound {
  float bound;  // U; NaN where the row has no certificate or the key may not be pruned
  float allowance;
};

/// Enqueues the bounds of rows [row_begin, row_end), row_begin a multiple of 64, by the
/// certificates that cuda_topk makes for them, the widest where it chooses. Keys outside all
/// windows of a block of 64 rows are left as they are. Shapes:   bounds (row_end - row_begin, N),
/// `bounds_stride` apart; workspace as for
///           DOSA_MODE_DOSA
/// Throws: gpu::CudaError where a launch fails
void cuda_bounds(const dosa_problem& problem, const dosa_options& options, int64_t row_begin,
                 int64_t row_end, KeyBound* bounds, int64_t bounds_stride, void* workspace,
                 cudaStream_t stream);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_RUN_CUH
