// SPDX-License-Identifier: Apache-2.0
// How much more memory was resident, at most, than at some moment.
#pragma once

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace dosa::bench {

/// A line of /proc/self/status that is in kB, in bytes; -1 where the system has none.
inline std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ':', 0) == 0) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return -1;
}

/// From its construction on. What was freed before is given back first, so that using it again
/// counts.
class PeakMemory {
 public:
  PeakMemory() {
    malloc_trim(0);
    std::ofstream reset("/proc/self/clear_refs");
    reset << "5";  // proc(5): the peak becomes what is resident now
    known_ = static_cast<bool>(reset.flush());
    start_ = status_bytes("VmRSS");
  }

  /// Bytes; -1 where the system does not let us know.
  [[nodiscard]] std::int64_t grown() const {
    const std::int64_t peak = status_bytes("VmHWM");
    if (!known_ || start_ < 0 || peak < 0) return -1;
    return peak > start_ ? peak - start_ : 0;
  }

 private:
  bool known_ = false;
  std::int64_t start_ = -1;
};

}  // namespace dosa::bench
