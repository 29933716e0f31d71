// SPDX-License-Identifier: Apache-2.0
// What screening and scoring a key cost, for choosing between them. Only ratios matter.
#ifndef DOSA_ENGINE_COST_MODEL_HPP
#define DOSA_ENGINE_COST_MODEL_HPP

#include "numeric/bounds.hpp"
#include "plan/operands.hpp"

namespace dosa::engine {

/// Core cycles, measured by bench/calibrate on AVX-512 VNNI (docs/measurements.md). Other
/// instruction sets scale both sides alike.
struct CostModel {
  double score_fixed = 45.0;       // per fully scored key
  double score_per_pair = 0.65;    // per 16 heads and pair of coordinates
  double screen_fixed = 3.0;       // per screened key
  double screen_per_pair = 0.043;  // per screening row and pair of coordinates

  [[nodiscard]] Estimate score(int heads, int head_dim) const {
    const int vectors = plan::padded_heads(heads) / plan::kHeadLanes;
    return Estimate(score_fixed + score_per_pair * vectors * head_dim / 2);
  }
  [[nodiscard]] Estimate screen(int rows, int head_dim) const {
    return Estimate(screen_fixed + screen_per_pair * rows * head_dim / 2);
  }
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_COST_MODEL_HPP
