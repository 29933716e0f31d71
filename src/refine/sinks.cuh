// SPDX-License-Identifier: Apache-2.0
// Where a quad's scores go: to a matrix, or as records to their rows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/row_state_sm90.cuh"
#include "refine/chain_sm90.cuh"

namespace dosa::refine {

/// Stores the scores of two keys (ids `keys`) for rows first_row .. first_row + kQueries - 1.
/// Shapes:   scores as ScoreChain leaves them; out (rows, num_keys), `stride` apart
template <int kQueries>
__device__ __forceinline__ void store_scores(float* out, int64_t stride, int rows, int num_keys,
                                             int first_row, const float (&scores)[kQueries][2],
                                             const int (&keys)[2]) {
  using Share = LaneShare<kQueries>;
  const int c = static_cast<int>(threadIdx.x) & 3;
  const int row = first_row + Share::query(c);
  if (row >= rows || !Share::owns(c)) return;
  float* const line = out + row * stride;
#pragma unroll
  for (int value = 0; value < Share::kValues; ++value) {
    const int key = Share::half(c, value) == 0 ? keys[0] : keys[1];
    if (key < num_keys) line[key] = Share::pick(scores, c, value);
  }
}

/// Records those that are above the row's floor and inside its window; `floor` is the floor score
/// of this lane's row, which takes part only where `open`. The whole warp calls this.
template <int kQueries>
__device__ __forceinline__ void record_scores(const numeric::RowState& rows, int first_row,
                                              float floor, const float (&scores)[kQueries][2],
                                              const int (&keys)[2], bool open = true) {
  using Share = LaneShare<kQueries>;
  const int c = static_cast<int>(threadIdx.x) & 3;
  float value[2];
  bool keep[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    value[i] = i < Share::kValues ? Share::pick(scores, c, i) : 0.0f;
    keep[i] = open && i < Share::kValues && Share::owns(c) && !(value[i] < floor);
  }
  if (!__any_sync(0xffffffffu, keep[0] || keep[1])) return;
  const int row = first_row + Share::query(c);
  const int2 window = rows.windows[row];
  const uint64_t floor_record = rows.floor_record[row];
  uint64_t records[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int key = Share::half(c, i) == 0 ? keys[0] : keys[1];
    records[i] = numeric::make_record(value[i], key);
    keep[i] = keep[i] && key >= window.x && key < window.y && records[i] > floor_record;
  }
  numeric::PendingRecords<Share::kClasses> pending;
  pending.begin(rows, row, keep, records);
  pending.finish(rows);
}

}  // namespace dosa::refine
