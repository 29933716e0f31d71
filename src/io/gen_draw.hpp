// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "io/gen_random.hpp"

namespace dosa::io {

/// Uniform in [0, count), count in [1, 2^32]; the bias is below count / 2^32.
[[nodiscard]] inline std::uint32_t below(const CounterRandom& random, std::uint64_t counter,
                                         std::uint64_t count) {
  return static_cast<std::uint32_t>(((random.bits(counter) >> 32) * count) >> 32);
}

/// Uniform multiples of 2^-24 in [0, 1): exact as a float.
[[nodiscard]] inline float unit(const CounterRandom& random, std::uint64_t counter) {
  return static_cast<float>(random.bits(counter) >> 40) * 0x1p-24F;
}

/// 0 .. count - 1 in a random order (Fisher and Yates), count <= 2^32.
[[nodiscard]] inline std::vector<std::uint32_t> shuffled(const CounterRandom& random,
                                                         std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[below(random, i, i)]);
  }
  return order;
}

}  // namespace dosa::io
