// SPDX-License-Identifier: Apache-2.0
// Exact Top-K of rows whose scores fit into shared memory whole: read once, in order of ids.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/row_state_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {

/// Whether launch_select_short_sm90 takes rows of `num_keys` scores on the current device.
cudaError_t fits_select_short_sm90(int64_t num_keys, const OutputForm& form, bool& fits);

/// Writes the answers of all rows from stored scores (rows, N), `stride` (a multiple of 4) apart.
/// Error:    cudaErrorInvalidValue where the rows do not fit
cudaError_t launch_select_short_sm90(const numeric::RowState& rows, const float* scores,
                                     int64_t stride, int64_t num_keys, const OutputForm& form,
                                     cudaStream_t stream);

}  // namespace dosa::select
