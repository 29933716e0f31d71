// SPDX-License-Identifier: Apache-2.0
#include "windows.hpp"

#include <algorithm>

namespace dosa::python {
namespace {

struct Config {
  static constexpr int kThreads = 256;
  static constexpr int kRun = 8192;  // columns of one block: 32 KiB written at most
};

__device__ std::int64_t clamped(const std::int32_t* bounds, std::int64_t row, std::int64_t other,
                                std::int64_t num_keys) {
  const std::int64_t value = bounds == nullptr ? other : bounds[row];
  return max(std::int64_t{0}, min(value, num_keys));
}

// Blocks of columns in x, rows in y and over the grid's height.
__global__ void __launch_bounds__(Config::kThreads)
    hide_outside_windows_kernel(const __grid_constant__ WindowedScores all) {
  const float hidden = -__int_as_float(0x7F800000);
  const std::int64_t first = std::int64_t{blockIdx.x} * Config::kRun;
  const std::int64_t last = min(first + Config::kRun, all.num_keys);
  for (std::int64_t row = blockIdx.y; row < all.rows; row += gridDim.y) {
    const std::int64_t start = clamped(all.k_start, row, 0, all.num_keys);
    const std::int64_t end = clamped(all.k_end, row, all.num_keys, all.num_keys);
    if (start <= first && last <= end) continue;
    float* const scores = all.scores + row * all.stride;
    for (std::int64_t key = first + threadIdx.x; key < last; key += Config::kThreads) {
      if (key < start || key >= end) scores[key] = hidden;
    }
  }
}

}  // namespace

cudaError_t launch_hide_outside_windows(const WindowedScores& scores, cudaStream_t stream) {
  if (scores.rows == 0 || scores.num_keys == 0) return cudaSuccess;
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  const auto columns = static_cast<unsigned>((scores.num_keys + Config::kRun - 1) / Config::kRun);
  const auto rows = static_cast<unsigned>(std::min(scores.rows, kMostRows));
  hide_outside_windows_kernel<<<dim3(columns, rows), Config::kThreads, 0, stream>>>(scores);
  return cudaGetLastError();
}

}  // namespace dosa::python
