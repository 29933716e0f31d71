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

/// One map; the innermost dimension is dense.
CUtensorMap make_map(CUtensorMapDataType type, cuuint32_t rank, const void* base,
                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                     CUtensorMapSwizzle swizzle) {
  static const EncodeTiled encode = find_encoder();
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, type, rank, const_cast<void*>(base), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw CudaError("cuTensorMapEncodeTiled refused " + std::to_string(sizes[rank - 1]) +
                    " pieces, " + std::to_string(strides[rank - 2]) + " bytes apart: result " +
                    std::to_string(result));
  }
  return map;
}

}  // namespace

CUtensorMap make_row_map(const void* base, int64_t rows, int64_t row_bytes, int box_rows,
                         int width) {
  constexpr cuuint64_t kRowBytes = 128;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(kRowBytes), static_cast<cuuint32_t>(box_rows)};
  return make_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, base, sizes, strides, box,
                  CU_TENSOR_MAP_SWIZZLE_128B);
}

PageMaps make_page_maps(const void* pages, int64_t num_pages, int64_t page_stride, int page_size,
                        int box_tokens) {
  constexpr cuuint64_t kKeyBytes = 128;
  const auto tokens = static_cast<cuuint64_t>(page_size);
  const auto box = static_cast<cuuint32_t>(box_tokens);
  const cuuint64_t key_sizes[3] = {kKeyBytes, tokens, static_cast<cuuint64_t>(num_pages)};
  const cuuint64_t key_strides[2] = {kKeyBytes, static_cast<cuuint64_t>(page_stride)};
  const cuuint32_t key_box[3] = {static_cast<cuuint32_t>(kKeyBytes), box, 1};
  const cuuint64_t scale_sizes[2] = {tokens, static_cast<cuuint64_t>(num_pages)};
  const cuuint64_t scale_strides[1] = {static_cast<cuuint64_t>(page_stride)};
  const cuuint32_t scale_box[2] = {box, 1};
  const uint8_t* const scales = static_cast<const uint8_t*>(pages) + tokens * kKeyBytes;
  return {make_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, pages, key_sizes, key_strides, key_box,
                   CU_TENSOR_MAP_SWIZZLE_128B),
          make_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, scales, scale_sizes, scale_strides,
                   scale_box, CU_TENSOR_MAP_SWIZZLE_NONE)};
}

}  // namespace dosa::gpu
