// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dosa::python {

/// Scores of rows of a device array, and the window of each row.
struct WindowedScores {
  float* scores;                // (rows, num_keys), score_stride elements between rows
  std::int64_t stride;          // elements between rows
  std::int64_t rows;            //
  std::int64_t num_keys;        //
  const std::int32_t* k_start;  // (rows); null: 0
  const std::int32_t* k_end;    // (rows); null: num_keys
};

/// Sets every score outside the window of its row, clamped to [0, num_keys), to -Inf.
[[nodiscard]] cudaError_t launch_hide_outside_windows(const WindowedScores& scores,
                                                      cudaStream_t stream);

}  // namespace dosa::python
