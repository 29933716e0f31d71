// SPDX-License-Identifier: Apache-2.0
// What a few heads and all heads of a key cost, for choosing between them. Exact scores are needed
// for the same keys either way and do not enter. Only ratios matter.
#ifndef DOSA_ENGINE_COST_MODEL_HPP
#define DOSA_ENGINE_COST_MODEL_HPP

#include "numeric/bounds.hpp"
#include "plan/operands.hpp"

namespace dosa::engine {

/// Core cycles, measured by bench/calibrate on AVX-512 VNNI (docs/measurements.md). Other
/// instruction sets scale both sides alike.
struct CostModel {
  double refine_fixed = 15.0;      // per key that all heads reject
  double refine_per_pair = 0.57;   // per 16 heads and pair of coordinates
  double screen_fixed = 2.0;       // per screened key
  double screen_per_pair = 0.042;  // per screening row and pair of coordinates

  [[nodiscard]] Estimate refine(int heads, int head_dim) const {
    const int vectors = plan::padded_heads(heads) / plan::kHeadLanes;
    return Estimate(refine_fixed + refine_per_pair * vectors * head_dim / 2);
  }
  [[nodiscard]] Estimate screen(int rows, int head_dim) const {
    return Estimate(screen_fixed + screen_per_pair * rows * head_dim / 2);
  }
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_COST_MODEL_HPP
