// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

namespace dosa::gpu {

/// Tensor map of rows of 128 bytes, read in boxes of `box_rows` rows with the 128-byte swizzle.
/// Shapes:   base (rows, 128) bytes, `row_bytes` apart (a multiple of 16); base aligned to 16
/// Guarantee: rows at or past `rows` read as zeros
/// Throws:   CudaError where the driver refuses it
CUtensorMap make_row_map(const void* base, int64_t rows, int64_t row_bytes, int box_rows);

}  // namespace dosa::gpu
