// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace dosa::gpu {

/// Rows of e4m3 codes in device memory, for kernels that read them without a tensor map.
/// Bytes past `width` and rows at or past `rows` count as zeros.
struct CodeRows {
  const uint8_t* codes;
  int64_t rows;
  int64_t stride;  // bytes between rows, a multiple of 16
  int width;       // bytes of a row that hold codes: at most 128, a multiple of 16
};

}  // namespace dosa::gpu
