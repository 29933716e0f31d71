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

/// Tensor maps of a paged cache: keys, read in boxes of `box_tokens` tokens of a page with the
/// 128-byte swizzle, and scales, read in boxes of as many floats.
/// Shapes:   pages (num_pages) of (page_size, 128) bytes and (page_size) floats, `page_stride`
///           bytes apart (a multiple of 16); pages aligned to 16, page_size a multiple of 16
/// Guarantee: pages that do not exist read as zeros
/// Throws:   CudaError where the driver refuses them
struct PageMaps {
  CUtensorMap keys;    // (D, page_size, num_pages) bytes
  CUtensorMap scales;  // (page_size, num_pages) floats
};
PageMaps make_page_maps(const void* pages, int64_t num_pages, int64_t page_stride, int page_size,
                        int box_tokens);

}  // namespace dosa::gpu
