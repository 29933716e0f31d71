// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dosa::plan {

/// Layout of the screening operand and its coefficients for R' rows per query.
/// A tile is 128 columns, for R' = 24 it is 96. Row i of query p (its place in a tile) is column 8j
/// + 2c + e with c = p % 4, j = p / 4 * R'/2 + i / 2, e = i % 2: in the accumulators one lane class
/// owns the whole query. Rows 0 .. R'-3 are retained heads, R'-2 and R'-1 the two e4m3 rows of the
/// aggregate.
struct ScreenLayout {
  static constexpr int kAuxiliaryRows = 2;
  static constexpr int kExtra = 2;  // after the R' coefficients: E and G of plan_sm90.cuh

  __host__ __device__ static constexpr int tile_columns(int screen_rows) {
    return screen_rows == 24 ? 96 : 128;
  }
  __host__ __device__ static constexpr int tile_queries(int screen_rows) {
    return tile_columns(screen_rows) / screen_rows;
  }
  /// Whether G is taken off the aggregate. Else it is part of E: one instruction less for each key,
  /// more survivors where aggregates are often silent (docs/kernels.md, The envelope).
  __host__ __device__ static constexpr bool takes_off(int screen_rows) { return screen_rows > 8; }
  __host__ __device__ static constexpr int stride(int screen_rows) { return screen_rows + kExtra; }
  __host__ __device__ static int column(int screen_rows, int place, int row) {
    return 8 * (place / 4 * (screen_rows / 2) + row / 2) + 2 * (place % 4) + row % 2;
  }
};

}  // namespace dosa::plan
