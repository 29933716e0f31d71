// SPDX-License-Identifier: Apache-2.0
// What the card reaches where nothing but copying or multiplying is asked of it.
#pragma once

#include <string>
#include <vector>

namespace dosa::cli {

/// Rates of repeated runs; empty where it was not measured, and `how` says why.
struct Ceiling {
  std::string how;
  std::vector<double> rates;
  [[nodiscard]] double rate() const;  // the median; 0 where there is none
};

struct Ceilings {
  Ceiling copy;     // bytes read and written per second
  Ceiling product;  // operations per second of a large e4m3 product
};

/// Measures both, about half a second of load.  Throws: gpu::CudaError
[[nodiscard]] Ceilings measure_ceilings();
[[nodiscard]] Ceilings no_ceilings();

}  // namespace dosa::cli
