// SPDX-License-Identifier: Apache-2.0
#include "doctor_system.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "io/error.hpp"

namespace dosa::cli {
namespace {

constexpr const char* kCgroup = "/sys/fs/cgroup";

/// The first line of `path` that begins with `name`, behind the name and what separates it; empty
/// where there is none.
std::string line_of(const std::string& path, const std::string& name) {
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t value = line.find_first_not_of(" \t:", name.size());
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

/// "1234 kB" in bytes; 0 where the line is absent.
std::int64_t memory_line(const std::string& name) {
  constexpr std::int64_t kKib = 1024;
  return std::atoll(line_of("/proc/meminfo", name + ":").c_str()) * kKib;
}

void look_at_limits(SystemFacts& facts) {
  const std::string memory = line_of(std::string(kCgroup) + "/memory.max", "");
  facts.memory_limit = memory == "max" ? 0 : std::atoll(memory.c_str());
  // "QUOTA PERIOD" in microseconds, or "max PERIOD".
  const std::string cpu = line_of(std::string(kCgroup) + "/cpu.max", "");
  const std::size_t space = cpu.find(' ');
  if (space == std::string::npos || cpu.rfind("max", 0) == 0) return;
  const double period = std::atof(cpu.c_str() + space);
  if (period > 0) facts.quota = std::atof(cpu.c_str()) / period;
}

void look_at_features(SystemFacts& facts) {
#if defined(__x86_64__)
  const auto note = [&facts](const char* name, bool there) {
    (there ? facts.present : facts.missing).emplace_back(name);
  };
  __builtin_cpu_init();
  note("avx2", __builtin_cpu_supports("avx2") != 0);
  note("fma", __builtin_cpu_supports("fma") != 0);
  note("bmi2", __builtin_cpu_supports("bmi2") != 0);
  note("avx512f", __builtin_cpu_supports("avx512f") != 0);
  note("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
  note("avx512dq", __builtin_cpu_supports("avx512dq") != 0);
  note("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
  note("avx512vnni", __builtin_cpu_supports("avx512vnni") != 0);
#else
  static_cast<void>(facts);
#endif
}

}  // namespace

SystemFacts look_at_system() {
  SystemFacts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  facts.processor = line_of("/proc/cpuinfo", "model name");
  facts.processors = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  facts.usable = known ? CPU_COUNT(&allowed) : facts.processors;
  facts.memory = memory_line("MemTotal");
  facts.available = memory_line("MemAvailable");
  look_at_limits(facts);
  look_at_features(facts);
  return facts;
}

std::string build_text() {
#if defined(__clang__)
  std::string text = "Clang " __clang_version__;
#elif defined(__GNUC__)
  std::string text = "GCC " __VERSION__;
#else
  std::string text = "an unknown compiler";
#endif
#ifdef NDEBUG
  text += ", without assertions";
#else
  text += ", with assertions";
#endif
  return text;
}

}  // namespace dosa::cli
