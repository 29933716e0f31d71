// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace dosa::io {

/// Random numbers addressed by (key, counter): no state, so that any part of a workload can be made
/// by any thread. Only integer operations and IEEE basic operations are used, so that the numbers
/// are the same on every machine.
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t key) : key_(key) {}

  /// An independent generator for part `part`.
  [[nodiscard]] CounterRandom child(std::uint64_t part) const {
    return CounterRandom(mix(key_ ^ mix(part + kOdd)));
  }

  /// 64 uniform bits (the splitmix64 sequence that starts at the key).
  [[nodiscard]] std::uint64_t bits(std::uint64_t counter) const {
    return mix(key_ + (counter + 1) * kOdd);
  }

  /// Uniform in [0, 1).
  [[nodiscard]] double uniform(std::uint64_t counter) const {
    return static_cast<double>(bits(counter) >> 11) * 0x1p-53;
  }

  /// Near-normal, mean 0, variance 1: the sum of the four 16-bit fields of one word. It ends at
  /// 3.46 standard deviations, which sums over many coordinates do not show.
  [[nodiscard]] float coordinate(std::uint64_t counter) const {
    constexpr float kMean = 2 * 65535.0F;
    constexpr float kInverseDeviation = 2.6429066e-5F;  // 1 / sqrt(4 (2^32 - 1) / 12)
    return (static_cast<float>(field_sum(bits(counter))) - kMean) * kInverseDeviation;
  }

  /// Near-normal to 6 standard deviations: the sum of twelve 16-bit fields. Uses counters
  /// 3 counter .. 3 counter + 2.
  [[nodiscard]] double normal(std::uint64_t counter) const {
    std::int64_t sum = -12 * 65535 / 2;
    for (std::uint64_t i = 0; i < 3; ++i) sum += field_sum(bits(3 * counter + i));
    return static_cast<double>(sum) * 0x1p-16;
  }

 private:
  static constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  static std::int32_t field_sum(std::uint64_t word) {
    return static_cast<std::int32_t>((word & 0xFFFF) + ((word >> 16) & 0xFFFF) +
                                     ((word >> 32) & 0xFFFF) + (word >> 48));
  }

  std::uint64_t key_;
};

}  // namespace dosa::io
