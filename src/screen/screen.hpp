// SPDX-License-Identifier: Apache-2.0
// Step 2: a certified upper bound for every key of a tile; reject below the threshold.
#ifndef DOSA_SCREEN_SCREEN_HPP
#define DOSA_SCREEN_SCREEN_HPP

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "numeric/bounds.hpp"
#include "numeric/outward.hpp"
#include "plan/operands.hpp"
#include "plan/screen_operand.hpp"

namespace dosa::screen {

/// Bit i % 64 of word i / 64: key i of the tile survives.
using Survivors = std::array<std::uint64_t, plan::kTileKeys / 64>;

/// The threshold that computed bounds are compared with: it absorbs the rounding and the underflow
/// of the multiplication by the key scale (N11). Infinite scores: prunable keys have finite ones
/// (N10).
inline LowerBound guarded_threshold(float tau) {
  if (std::isinf(tau)) {
    return LowerBound(tau < 0.0F ? tau : std::numeric_limits<float>::max());
  }
  const double value = tau;
  return LowerBound(round_down(value - std::fabs(value) * 0x1p-22 - 0x1p-146));
}

/// The certified bound behind a computed one: never below the score (N12).
inline UpperBound certified_bound(float computed) {
  if (!(computed >= std::numeric_limits<float>::lowest())) {  // NaN, -Inf: no valid bound
    return UpperBound(std::numeric_limits<float>::infinity());
  }
  const double value = computed;
  return UpperBound(round_up(value + std::fabs(value) * 0x1p-23 + 0x1p-147));
}

/// Bounds and survivors of the keys of a tile for one query row.
/// Shapes:    bounds (kTileKeys) computed bounds, compare with guarded_threshold only
/// Guarantee: bit i clear => the score of key i is below the threshold (E6); keys whose factor or
///            bound is not finite survive; bits behind tile.count are clear
/// Cost:      count * rows * D multiply-adds
Survivors screen_tile(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                      LowerBound guarded, float* bounds);
Survivors screen_tile_ref(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                          LowerBound guarded, float* bounds);

}  // namespace dosa::screen

#endif  // DOSA_SCREEN_SCREEN_HPP
