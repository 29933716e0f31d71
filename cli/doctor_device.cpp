// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "doctor_system.hpp"

#ifdef DOSA_CUDA_ENGINE
#include <cuda_runtime_api.h>
#endif

namespace dosa::cli {
namespace {

/// The kernel module's own words; empty where there is none.
std::string kernel_driver() {
  std::ifstream stream("/proc/driver/nvidia/version");
  std::string line;
  std::getline(stream, line);
  // Blanks in a row, and those at the end, are the kernel's padding.
  const auto padding = [](char a, char b) { return a == ' ' && b == ' '; };
  line.erase(std::unique(line.begin(), line.end(), padding), line.end());
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

#ifdef DOSA_CUDA_ENGINE

/// CUDA's 12040 as "12.4".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void look_with_cuda(DeviceFacts& facts) {
  constexpr int kMajor = 9;  // the engine's kernels are built for sm_90a alone
  constexpr double kGib = 1 << 30;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) facts.runtime = version_text(version);
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) {
    facts.driver +=
        fmt::format("{}supports CUDA {}", facts.driver.empty() ? "" : "; ", version_text(version));
  }
  int count = 0;
  const cudaError_t asked = cudaGetDeviceCount(&count);
  if (asked != cudaSuccess) {
    facts.failure = cudaGetErrorString(asked);
    return;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp found{};
    const cudaError_t got = cudaGetDeviceProperties(&found, device);
    if (got != cudaSuccess) {
      facts.failure = fmt::format("device {}: {}", device, cudaGetErrorString(got));
      continue;
    }
    (found.major == kMajor ? facts.usable : facts.others)
        .push_back(fmt::format("{}, sm_{}{}, {} multiprocessors, {:.1f} GiB", found.name,
                               found.major, found.minor, found.multiProcessorCount,
                               static_cast<double>(found.totalGlobalMem) / kGib));
  }
}

#endif

}  // namespace

DeviceFacts look_at_devices() {
  DeviceFacts facts;
  facts.driver = kernel_driver();
#ifdef DOSA_CUDA_ENGINE
  facts.built = true;
  look_with_cuda(facts);
#endif
  return facts;
}

}  // namespace dosa::cli
