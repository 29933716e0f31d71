// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime as the extension needs it: the current device, streams, memory of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nanobind {
class module_;
}

namespace dosa::python {

/// Throws: Failure where a call of the CUDA runtime failed.
void check_cuda(cudaError_t status, const char* call);

/// Makes a device current, and the one before on leaving.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// The stream behind the number that libraries give: 0 and 1 are the default stream.
inline cudaStream_t stream_of(std::uintptr_t number) {
  return number <= 1 ? nullptr : reinterpret_cast<cudaStream_t>(number);
}

/// Adds memory, streams and pointers to dosa._core.
void bind_device_memory(nanobind::module_& module);

}  // namespace dosa::python
