// SPDX-License-Identifier: Apache-2.0
// What kernels need that stream keys past stationary columns (query heads or screening rows).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/code_rows.hpp"
#include "gpu/key_order.cuh"

namespace dosa::gpu {

/// Tensor maps are filled in for kernels that read by them; the plain rows always.
struct StationaryParams {
  CUtensorMap keys;        // (N, 128) e4m3, boxes of 256 rows
  CUtensorMap columns;     // (blocks * columns of a block, 128) e4m3, boxes of one tile
  CodeRows key_rows;       // the keys again
  CodeRows column_rows;    // the columns again
  const float2* key_meta;  // (units * 256): scale and norm bound of each key
  const int* chosen;       // not null: the kernel ends at once unless this is `variant`
  int variant;
  Round round;
};

/// The two keys whose accumulators a thread holds: rows lane/4 and lane/4 + 8 of its warp's 16.
struct KeyPair {
  int place;     // of the unit in the block's order
  int unit_row;  // of the first key inside its unit; the second is 8 further
  int key;       // id of the first key; the second is 8 further
  float scale[2];
  float norm[2];
};

}  // namespace dosa::gpu
