// SPDX-License-Identifier: Apache-2.0
// The audit of the device engine: every bound against its score, every answer against every key.
#pragma once

#include <cuda_runtime_api.h>

#include "dosa/dosa_cuda.h"
#include "engine/cuda_run.cuh"

namespace dosa::engine {

/// Told when the bounds of some rows have been enqueued, before they are compared: what a test does
/// to them must show.
struct AuditHook {
  void (*bounds)(void* user, KeyBound* bounds, int64_t first_row, int64_t rows, int64_t stride,
                 cudaStream_t stream) = nullptr;
  void* user = nullptr;
};

/// Fills `report` for a problem and options that dosa_cuda_topk accepts. `answers` false: the
/// bounds only, no call of dosa_cuda_topk is made or judged.
/// Allocates, waits. Throws: gpu::CudaError
void cuda_audit(const dosa_problem& problem, const dosa_options& options, bool answers,
                dosa_cuda_verification& report, AuditHook hook = {});

}  // namespace dosa::engine
