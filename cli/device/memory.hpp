// SPDX-License-Identifier: Apache-2.0
// Device memory of the command.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpu/check.hpp"

namespace dosa::cli {

/// Elements in device memory; none is initialised.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(bytes(), 1)));
  }
  DeviceArray(const T* host, std::size_t count) : DeviceArray(count) {
    DOSA_CUDA(cudaMemcpy(data_, host, bytes(), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> copy(count_);
    DOSA_CUDA(cudaMemcpy(copy.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Elements in host memory that the device copies to at full speed; none is initialised.
template <class T>
class PinnedArray {
 public:
  PinnedArray() = default;
  explicit PinnedArray(std::size_t count) : count_(count) {
    const std::size_t bytes = std::max<std::size_t>(count * sizeof(T), 1);
    DOSA_CUDA(cudaMallocHost(reinterpret_cast<void**>(&data_), bytes));
  }
  PinnedArray(PinnedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() { cudaFreeHost(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// What the engine runs on: "NVIDIA H200, sm_90, 132 multiprocessors".
/// Throws: cli::Failure where there is no driver or the first device is older than sm_80
[[nodiscard]] std::string require_device();

}  // namespace dosa::cli
