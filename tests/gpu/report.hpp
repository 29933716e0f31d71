// SPDX-License-Identifier: Apache-2.0
// What every program of the device tests does: it counts its checks, runs its parts and says how
// they ended.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>

namespace dosa::testing {

inline int failures = 0;
inline int checks = 0;

inline void expect(bool ok, const std::string& name, const std::string& found) {
  ++checks;
  if (ok) return;
  if (++failures <= 30) std::printf("FAILED %s: %s\n", name.c_str(), found.c_str());
}

inline bool has_hopper() {
  cudaDeviceProp device{};
  return cudaGetDeviceProperties(&device, 0) == cudaSuccess && device.major == 9;
}

struct Part {
  enum class When { kWithDevice, kAnywhere, kNamed };
  const char* name;
  void (*check)();
  When when = When::kWithDevice;  // kNamed: with a device, and only when asked for by name
};

/// Runs the parts, all or the one that argv[1] names, and returns the exit status: 0, 1 where a
/// check failed, 2 where there is no such part, 77 where parts need a device that is missing.
inline int run_parts(std::initializer_list<Part> parts, int argc, char** argv,
                     bool device = has_hopper()) {
  const char* const named = argc > 1 && std::strcmp(argv[1], "all") != 0 ? argv[1] : nullptr;
  int run = 0;
  int skipped = 0;
  for (const Part& part : parts) {
    if (named != nullptr ? std::strcmp(named, part.name) != 0 : part.when == Part::When::kNamed) {
      continue;
    }
    if (!device && part.when != Part::When::kAnywhere) {
      std::printf("%-8s skipped: no device for it\n", part.name);
      ++skipped;
      continue;
    }
    const int failed = failures;
    const int done = checks;
    try {
      part.check();
    } catch (const std::exception& error) {
      expect(false, part.name, error.what());
    }
    // A part that checks nothing has not run.
    if (checks == done) expect(false, part.name, "no check was made");
    std::printf("%-8s %5d checks, %d failed\n", part.name, checks - done, failures - failed);
    std::fflush(stdout);
    ++run;
  }
  if (run + skipped == 0) {
    std::printf("there is no part %s\n", named);
    return 2;
  }
  if (failures != 0) return 1;
  return skipped == 0 ? 0 : 77;
}

}  // namespace dosa::testing
