// SPDX-License-Identifier: Apache-2.0
// The scalar reference of screening, in the order of operations of the SIMD kernel.
#include <algorithm>
#include <cmath>

#include "screen/screen.hpp"

namespace dosa::screen {
namespace {

std::int32_t integer_dot(const std::int32_t* pairs, const std::int16_t* key, int dims) {
  std::int32_t sum = 0;
  for (int j = 0; j < dims / 2; ++j) {
    const auto first = static_cast<std::int16_t>(pairs[j] & 0xFFFF);
    const auto second = static_cast<std::int16_t>(pairs[j] >> 16);
    sum += first * key[2 * j] + second * key[2 * j + 1];
  }
  return sum;
}

float allowance(const plan::ScreenOperand& operand, const plan::KeyTile& tile, int key) {
  float grouped = 0.0F;
  for (int g = 0; g < operand.groups; ++g) {
    grouped =
        std::fma(operand.group_allowance[g], tile.group_norm[g * tile.capacity + key], grouped);
  }
  return std::min(operand.allowance * tile.norm[key], grouped);
}

}  // namespace

Survivors screen_tile_ref(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                          LowerBound guarded, float* bounds) {
  Survivors survivors{};
  const int dims = tile.head_dim;
  const int clipped = operand.absolute ? operand.rows - 2 : operand.rows;
  for (int i = 0; i < tile.count; ++i) {
    const std::int16_t* key = tile.rows + i * dims;
    float sum = std::fma(operand.norm_term, tile.norm[i], operand.floor);
    sum = std::fma(operand.low_term, tile.low_norm[i], sum);
    if (operand.groups > 0) sum += allowance(operand, tile, i);
    for (int r = 0; r < operand.rows; ++r) {
      const auto x = static_cast<float>(integer_dot(operand.pairs + r * (dims / 2), key, dims));
      const float value = r < clipped ? std::max(x, 0.0F) : (r == clipped ? x : std::fabs(x));
      sum = std::fma(operand.coefficient[r], value, sum);
    }
    bounds[i] = sum * tile.factor[i];
    if (!rejects(UpperBound(bounds[i]), guarded)) {
      survivors[static_cast<std::size_t>(i) / 64] |= std::uint64_t{1} << (i % 64);
    }
  }
  return survivors;
}

}  // namespace dosa::screen
