// SPDX-License-Identifier: Apache-2.0
// Time and its spread, and the machine that it was measured on.
#ifndef DOSA_CLI_MEASURE_HPP
#define DOSA_CLI_MEASURE_HPP

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace dosa::bench {

/// Seconds of a clock of clock_gettime(2).
inline double clock_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What one run took: on the wall, and of all the process's threads together. The second hardly
/// notices other programs, but counts a thread that spins at a barrier.
struct Lap {
  double wall = 0.0;
  double cpu = 0.0;
};

template <typename Work>
Lap time_once(const Work& work) {
  const double wall = clock_seconds(CLOCK_MONOTONIC);
  const double cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  work();
  return {clock_seconds(CLOCK_MONOTONIC) - wall, clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu};
}

/// Quantile by linear interpolation; NaN where there is no sample.
inline double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return std::nan("");
  std::sort(samples.begin(), samples.end());
  const double at = share * static_cast<double>(samples.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (at - static_cast<double>(low)) * (samples[high] - samples[low]);
}

inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

/// Half the distance between the quartiles, relative to the median.
inline double spread(const std::vector<double>& samples) {
  return (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2 / median(samples);
}

/// The first output line of a command; empty where it failed.
inline std::string command_line_output(const char* command) {
  std::FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return {};
  std::array<char, 256> line{};
  std::string text;
  if (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) text = line.data();
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// "model name" of the first processor; empty where the system does not say.
inline std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace dosa::bench

#endif  // DOSA_CLI_MEASURE_HPP
