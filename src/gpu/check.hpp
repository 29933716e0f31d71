// SPDX-License-Identifier: Apache-2.0
// The one way in which a failed CUDA call becomes an exception.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace dosa::gpu {

/// Thrown for a failed CUDA runtime or driver call; the text names the call and its place.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw CudaError(std::string(call) + " failed at " + file + ":" + std::to_string(line) + ": " +
                  cudaGetErrorString(status));
}

}  // namespace dosa::gpu

#define DOSA_CUDA(call) ::dosa::gpu::check((call), #call, __FILE__, __LINE__)
