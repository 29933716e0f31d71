// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

namespace dosa::gpu {

/// Tensor map of rows that are read as 128 bytes, in boxes of `box_rows` rows with the 128-byte
/// swizzle.
/// Shapes:   base (rows, width) bytes, `row_bytes` apart (a multiple of 16); base aligned to 16
/// Guarantee: bytes past `width` and rows at or past `rows` read as zeros
/// Throws:   CudaError where the driver refuses it
CUtensorMap make_row_map(const void* base, int64_t rows, int64_t row_bytes, int box_rows,
                         int width = 128);

}  // namespace dosa::gpu
