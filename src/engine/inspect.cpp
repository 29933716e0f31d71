// SPDX-License-Identifier: Apache-2.0
// A look at one row: its certificate, bounds and scores, without an answer.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/row_group.hpp"

namespace dosa::engine {

const RowState& RowGroup::inspect(std::int64_t row) {
  RowState& state = states_[0];
  start_row(row, state);
  pack_row(state);
  num_known_ = num_sample_ = 0;
  inspecting_ = true;
  seeded_ = false;
  if (!state.ranked.empty()) prepare_sample(state.ranked);
  score_sample(state);
  plan_row(state, nullptr);
  return state;
}

void RowGroup::inspect_bounds(float* bounds) {
  const RowState& state = states_[0];
  for (std::int64_t begin = state.window.begin; begin < state.window.end;
       begin += plan::kTileKeys) {
    const auto length =
        static_cast<int>(std::min<std::int64_t>(plan::kTileKeys, state.window.end - begin));
    if (!state.certifiable) {
      std::fill(bounds + begin, bounds + begin + length, std::numeric_limits<float>::infinity());
      continue;
    }
    plan::build_tile(keys_, begin, nullptr, length, tile_);
    screen::screen_tile(state.operand, tile_, LowerBound(0.0F), bounds_);
    for (int n = 0; n < length; ++n) {
      bounds[begin + n] = screen::certified_bound(bounds_[n]).value;
    }
  }
}

void RowGroup::score_row(std::int64_t row, float* scores) {
  RowState& state = states_[0];
  start_row(row, state);
  pack_row(state);
  for (std::int64_t begin = state.window.begin; begin < state.window.end;
       begin += plan::kTileKeys) {
    const auto length =
        static_cast<int>(std::min<std::int64_t>(plan::kTileKeys, state.window.end - begin));
    plan::build_tile(keys_, begin, nullptr, length, tile_);
    refine::score_keys(state.query, tile_, nullptr, length, scores + begin, nullptr);
    for (float* score = scores + begin; score != scores + begin + length; ++score) {
      // Which NaN comes out is up to the instruction set: one for all.
      if (std::isnan(*score)) *score = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace dosa::engine
