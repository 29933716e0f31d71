// SPDX-License-Identifier: Apache-2.0
// Step 3 of decoding: the exact Top-K of what the scan kept, and what the next step begins with.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/paged_sm90.cuh"
#include "select/paged_scan_sm90.cuh"
#include "select/paged_witness_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {

struct PagedSelectParams {
  numeric::PagedStep step;
  PagedRecords found;
  OutputForm form;           // its table is that of the requests
  WitnessStates states;      // rewritten
  WitnessResults witnesses;  // bins null: nothing was counted
};

/// Writes every row's answer, and the state of every request that has one: the best records, the
/// winners among them, of its last query with a token to see.
cudaError_t launch_paged_select_sm90(const PagedSelectParams& params, cudaStream_t stream);

}  // namespace dosa::select
