// SPDX-License-Identifier: Apache-2.0
#include "gpu/tensor_map.hpp"

#include <cuda_runtime.h>

#include "gpu/check.hpp"

namespace dosa::gpu {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's encoder, found through the runtime so that nothing links to the driver library.
EncodeTiled find_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSince = 12000;  // cuTensorMapEncodeTiled appeared with CUDA 12.0
  DOSA_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince,
                                             cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || entry == nullptr) {
    throw CudaError("the driver has no cuTensorMapEncodeTiled; CUDA 12 or later is needed");
  }
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

CUtensorMap make_row_map(const void* base, int64_t rows, int64_t row_bytes, int box_rows,
                         int width) {
  static const EncodeTiled encode = find_encoder();
  constexpr cuuint64_t kRowBytes = 128;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(kRowBytes), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), sizes, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw CudaError("cuTensorMapEncodeTiled refused rows " + std::to_string(rows) + ", row bytes " +
                    std::to_string(row_bytes) + ": result " + std::to_string(result));
  }
  return map;
}

}  // namespace dosa::gpu
