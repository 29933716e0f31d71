// SPDX-License-Identifier: Apache-2.0
// Measures how a card's FP8 tensor core adds, and compares it with the software model.
#ifndef DOSA_GPU_PROBE_REPORT_HPP
#define DOSA_GPU_PROBE_REPORT_HPP

#include <cstdint>
#include <string>

namespace dosa::gpu {

struct ProbeOptions {
  std::uint64_t dots = 100'000'000;  // dot products per tile width, all classes together
  std::uint64_t seed = 1;
  bool search = false;  // try other models of the adder as well
  std::string golden;   // write operands and result bits here; empty: do not
  std::string dump;     // write raw tiles here; empty: do not
};

/// Prints what device 0 does with designed and random products, and how often the model of
/// docs/numerics-sm90.md differs.
/// Returns:  the number of dot products that differ; 0 on a card that the model describes
/// Throws:   std::runtime_error for a CUDA error or a file that cannot be written
[[nodiscard]] std::uint64_t run_probe(const ProbeOptions& options);

}  // namespace dosa::gpu

#endif  // DOSA_GPU_PROBE_REPORT_HPP
