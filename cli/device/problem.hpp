// SPDX-License-Identifier: Apache-2.0
// A problem of the host, copied to the device.
#pragma once

#include <dosa/dosa_cuda.h>

#include "device/memory.hpp"

namespace dosa::cli {

/// Name of the score model that these options mean on the current device.  Throws: gpu::CudaError
[[nodiscard]] const char* model_on_device(const dosa_options& options);

class DeviceProblem {
 public:
  /// Copies the tensors of `host`, which must outlive cut().  Throws: gpu::CudaError
  explicit DeviceProblem(const dosa_problem& host);

  /// The whole problem with device pointers.
  [[nodiscard]] const dosa_problem& problem() const { return problem_; }

  /// The same for a part of the host's problem: pointers into the whole, windows of its own, which
  /// replace those of the last cut.
  [[nodiscard]] dosa_problem cut(const dosa_problem& part);

 private:
  const dosa_problem host_;
  DeviceArray<std::uint8_t> q_, k_;
  DeviceArray<float> k_scale_, weights_;
  DeviceArray<std::int32_t> start_, end_;
  dosa_problem problem_;
};

}  // namespace dosa::cli
