// SPDX-License-Identifier: Apache-2.0
// From a step's shape to the tile of columns that suits it.
#pragma once

#include <cuda_runtime.h>

#include "refine/paged_operands_sm90.cuh"

namespace dosa::refine {

/// Calls `visit` with the ColumnTile for so many padded heads (32, 64 or 128) and queries. Several
/// tiles of 64 columns come before one of 128, whose sums no longer fit into the registers.
template <class Visit>
cudaError_t with_column_tile(int padded_heads, int next_n, Visit visit) {
  switch (padded_heads) {
    case 32:
      return next_n == 1 ? visit(ColumnTile<32, 1>{}) : visit(ColumnTile<32, 2>{});
    case 64:
      return visit(ColumnTile<64, 1>{});
    case 128:
      return visit(ColumnTile<128, 1>{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::refine
