// SPDX-License-Identifier: Apache-2.0
// Counting and reporting of the checks on decode steps.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "gpu/paged_inputs.hpp"

namespace dosa::testing {

inline int failures = 0;
inline int checks = 0;

inline void expect(bool ok, const std::string& name, const std::string& found) {
  ++checks;
  if (ok) return;
  if (++failures <= 30) std::printf("FAILED %s: %s\n", name.c_str(), found.c_str());
}

inline std::string describe(const PagedSpec& s) {
  return "B " + std::to_string(s.batch) + " n " + std::to_string(s.next_n) + " H " +
         std::to_string(s.heads) + " K " + std::to_string(s.topk) + " page " +
         std::to_string(s.page_size) + "+" + std::to_string(s.page_gap) + " tokens " +
         std::to_string(s.tokens);
}

inline std::string first_difference(const PagedAnswer& found, const PagedAnswer& wanted, int topk) {
  for (size_t i = 0; i < wanted.ids.size(); ++i) {
    const bool scores = !wanted.scores.empty() && found.scores[i] != wanted.scores[i];
    if (found.ids[i] == wanted.ids[i] && !scores) continue;
    char text[160];
    std::snprintf(text, sizeof text, "row %zu place %zu: id %d, expected %d%s", i / topk, i % topk,
                  found.ids[i], wanted.ids[i], scores ? " (scores differ)" : "");
    return text;
  }
  return "same";
}

inline void compare(const std::string& name, const PagedSpec& spec, const PagedAnswer& found,
                    const PagedAnswer& wanted) {
  expect(found == wanted, name + ", " + describe(spec), first_difference(found, wanted, spec.topk));
}

inline HostInputs make_keys(const PagedSpec& spec, unsigned seed) {
  return make_real(spec.batch * spec.next_n, spec.batch * spec.tokens, spec.heads, seed);
}

/// Runs the parts, all or the one that is named; returns the exit status.
template <size_t kCount>
int run_parts(const std::pair<const char*, void (*)()> (&parts)[kCount], int argc, char** argv) {
  for (const auto& [name, check] : parts) {
    if (argc > 1 && std::strcmp(argv[1], name) != 0) continue;
    const int failed = failures;
    const int done = checks;
    try {
      check();
    } catch (const std::exception& error) {
      expect(false, name, error.what());
    }
    std::printf("%-8s %5d checks, %d failed\n", name, checks - done, failures - failed);
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}

inline bool has_device() {
  cudaDeviceProp device{};
  return cudaGetDeviceProperties(&device, 0) == cudaSuccess && device.major == 9;
}

}  // namespace dosa::testing
