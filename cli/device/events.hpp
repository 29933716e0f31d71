// SPDX-License-Identifier: Apache-2.0
// Times on the device's own clock.
#pragma once

#include <cuda_runtime_api.h>

#include "gpu/check.hpp"

namespace dosa::cli {

/// A point in the default stream.
class Event {
 public:
  Event() { DOSA_CUDA(cudaEventCreate(&event_)); }
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  void record() const { DOSA_CUDA(cudaEventRecord(event_)); }

  /// Waits for this event.
  [[nodiscard]] double seconds_since(const Event& earlier) const {
    constexpr double kMilli = 1e-3;
    float ms = 0.0F;
    DOSA_CUDA(cudaEventSynchronize(event_));
    DOSA_CUDA(cudaEventElapsedTime(&ms, earlier.event_, event_));
    return kMilli * static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace dosa::cli
