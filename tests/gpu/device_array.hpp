// SPDX-License-Identifier: Apache-2.0
// Device memory for tests and measurements.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "gpu/check.hpp"

namespace dosa::testing {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T) + 256));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    DOSA_CUDA(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] size_t size() const { return count_; }

  void poison() const { DOSA_CUDA(cudaMemset(data_, 0xa5, count_ * sizeof(T))); }

  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> copy(count_);
    DOSA_CUDA(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

}  // namespace dosa::testing
