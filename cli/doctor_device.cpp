// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "doctor_system.hpp"

#ifdef DOSA_CUDA_ENGINE
#include <cuda_runtime_api.h>

#include <utility>

#include "dosa/dosa.h"
#include "engine/cuda_model.hpp"
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

constexpr int kTested = 90;

/// CUDA's 12040 as "12.4".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// "models sm90, mma_f16 (run on such a card)"; empty where the device can run none.
std::string models_text(int capability) {
  std::string names;
  for (const int model : {DOSA_MODEL_SM90, DOSA_MODEL_MMA_F16, DOSA_MODEL_MMA_FP8}) {
    if (!engine::can_run_model(model, capability)) continue;
    names += names.empty() ? "models " : ", ";
    names += engine::model_name(model);
  }
  if (names.empty()) return names;
  // The tests of the device have been run on an H200 alone.
  return names + (capability == kTested ? " (tested on such a card)" : " (compiled, never run)");
}

void look_with_cuda(DeviceFacts& facts) {
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
    const int capability = found.major * 10 + found.minor;
    std::string text =
        fmt::format("{}, sm_{}, {} multiprocessors, {:.1f} GiB", found.name, capability,
                    found.multiProcessorCount, static_cast<double>(found.totalGlobalMem) / kGib);
    const std::string models = models_text(capability);
    if (!models.empty()) text += ", " + models;
    (models.empty() ? facts.others : facts.usable).push_back(std::move(text));
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
