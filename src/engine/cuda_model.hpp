// SPDX-License-Identifier: Apache-2.0
// Which score models a device can run.
#ifndef DOSA_ENGINE_CUDA_MODEL_HPP
#define DOSA_ENGINE_CUDA_MODEL_HPP

#include "dosa/dosa.h"

namespace dosa::engine {

/// Capability of the current device as major * 10 + minor. Throws: gpu::CudaError
int device_capability();

/// Whether a device can run a dosa_score_model: sm_90 the `sm90` model, sm_80 and later `mma_f16`,
/// sm_89 and sm_12x `mma_fp8`.
bool can_run_model(int model, int capability);

/// What DOSA_MODEL_DEFAULT stands for on a device; DOSA_MODEL_DEFAULT where it can run none.
int default_model(int capability);

/// "sm90", "mma_f16", ...; "none" for DOSA_MODEL_DEFAULT.
const char* model_name(int model);

/// Refuses a call that the current device cannot run: a score model without kernels for it, or K
/// too large for its shared memory. Throws: gpu::CudaError
dosa_status check_device(const dosa_problem& problem, const dosa_options& options);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_MODEL_HPP
