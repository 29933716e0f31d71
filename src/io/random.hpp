// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace dosa::io {

/// Counter-based random numbers: a value depends on (seed, stream, index) and on nothing else, so
/// tensors can be filled in any order and come out the same on every machine.
/// The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied twice.
class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t stream)
      : key_(mix(seed + kIncrement * (stream + 1))) {}

  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const {
    return mix(key_ + kIncrement * (index + 1));
  }

  /// Uniform in [0, count), count in [1, 2^32]; the bias is below count / 2^32.
  [[nodiscard]] constexpr std::uint32_t below(std::uint64_t index, std::uint64_t count) const {
    return static_cast<std::uint32_t>(((bits(index) >> 32) * count) >> 32);
  }

  /// Uniform multiples of 2^-24 in [0, 1): exact as a float.
  [[nodiscard]] constexpr float unit(std::uint64_t index) const {
    return static_cast<float>(bits(index) >> 40) * 0x1p-24F;
  }

 private:
  static constexpr std::uint64_t kIncrement = 0x9E3779B97F4A7C15U;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
};

/// 0 .. count - 1 in a random order (Fisher and Yates), count <= 2^32.
[[nodiscard]] inline std::vector<std::uint32_t> shuffled(std::size_t count, const Random& random) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i, i)]);
  }
  return order;
}

}  // namespace dosa::io
