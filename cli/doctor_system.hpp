// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dosa::cli {

/// What `dosa doctor` says about the machine. Nothing here names the machine or its user.
struct SystemFacts {
  std::string system;     // "Linux 6.1.0 x86_64"
  std::string processor;  // as the kernel names it; empty where it does not
  int processors = 0;     // of the machine
  int usable = 0;         // that this process may run on
  double quota = 0;       // processors' worth of time that the control group allows; 0: no limit
  std::int64_t memory = 0, available = 0;     // bytes; 0: unknown
  std::int64_t memory_limit = 0;              // of the control group, bytes; 0: none
  std::vector<std::string> present, missing;  // of the processor features that the library can use
};

[[nodiscard]] SystemFacts look_at_system();

/// A device and its driver, as far as this build can see them.
struct DeviceFacts {
  bool built = false;               // this build has the device engine
  std::string driver;               // text; empty where there is none
  std::string runtime;              // CUDA runtime of this build; empty without the device engine
  std::string failure;              // what asking for devices failed with; empty where it did not
  std::vector<std::string> usable;  // sm_80 or later: "NVIDIA ..., 132 multiprocessors, ... GiB"
  std::vector<std::string> others;
};

[[nodiscard]] DeviceFacts look_at_devices();

/// What dosa_cuda_verify found on small problems, in every mode.
struct DeviceCheck {
  bool ran = false;  // false where this build has no device engine
  std::int64_t calls = 0, rows = 0;
  std::int64_t bounded = 0;  // pairs of a query and a key with a bound that was checked
  std::string difference;    // the first call that was wrong; empty where none was
};

/// Needs an sm_90 device.  Throws: Failure where the library refuses a call, gpu::CudaError
[[nodiscard]] DeviceCheck check_device();

/// The compiler of this build, and whether assertions are on: "GCC 12.2.0, optimised".
[[nodiscard]] std::string build_text();

}  // namespace dosa::cli
