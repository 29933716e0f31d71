// SPDX-License-Identifier: Apache-2.0
#include "select/optimistic_sm90.cuh"

namespace dosa::select {
namespace {

constexpr int kProveThreads = 128;

__global__ void prove_sm90_kernel(const __grid_constant__ numeric::RowState rows) {
  const int row = static_cast<int>(blockIdx.x) * kProveThreads + static_cast<int>(threadIdx.x);
  if (row >= rows.rows || (rows.flags[row] & numeric::kRowRecover) != 0) return;
  const float estimate = rows.optimistic[row];
  const bool used = estimate > -__int_as_float(0x7f800000);
  if (!used) return;
  // A row without a floor has a NaN score and fails.
  const uint64_t floor = rows.floor_record[row];
  if (numeric::score_of_code(static_cast<uint32_t>(floor >> 32)) >= estimate) return;
  numeric::close_row(rows, row, floor);
}

}  // namespace

cudaError_t launch_prove_sm90(const numeric::RowState& rows, cudaStream_t stream) {
  const int ctas = (rows.rows + kProveThreads - 1) / kProveThreads;
  if (ctas == 0) return cudaSuccess;
  prove_sm90_kernel<<<ctas, kProveThreads, 0, stream>>>(rows);
  return cudaGetLastError();
}

}  // namespace dosa::select
