// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "io/gen_random.hpp"

// Vectors of the workload generator. Sums run from the first coordinate to the last, in fp32 and
// without contraction, so that a workload has the same bytes on every machine.
namespace dosa::io {

inline constexpr std::size_t kGenDim = 128;
using GenVector = std::array<float, kGenDim>;

[[nodiscard]] inline float dot(const GenVector& a, const GenVector& b) {
  float sum = 0;
  for (std::size_t d = 0; d < kGenDim; ++d) sum += a[d] * b[d];
  return sum;
}

inline void add(GenVector& to, float factor, const GenVector& from) {
  for (std::size_t d = 0; d < kGenDim; ++d) to[d] += factor * from[d];
}

inline void normalise(GenVector& a) {
  const float inverse = 1.0F / std::sqrt(dot(a, a));
  for (float& x : a) x *= inverse;
}

[[nodiscard]] inline GenVector random_vector(const CounterRandom& random, std::uint64_t index) {
  GenVector result;
  for (std::size_t d = 0; d < kGenDim; ++d) result[d] = random.coordinate(index * kGenDim + d);
  return result;
}

/// The code nearest to x, ties to even; |x| <= 448.
[[nodiscard]] inline std::uint8_t e4m3_code(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 24) & 0x80;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  constexpr std::uint32_t kSmallestNormal = std::bit_cast<std::uint32_t>(0x1p-6F);
  std::uint32_t code = 0;
  if (magnitude < kSmallestNormal) {
    // Adding 2^14 leaves multiples of 2^-9 in the mantissa's last bits, rounded to nearest even.
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) & 0xF;
  } else {
    constexpr std::uint32_t kBias = (127 - 7) << 3;
    code = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - kBias;
  }
  return static_cast<std::uint8_t>(sign | code);
}

/// Writes the codes of v / scale with scale = max |v| / 448 and returns the scale.
inline float quantise(const GenVector& v, std::uint8_t* codes) {
  float largest = 0;
  for (const float x : v) largest = std::max(largest, std::abs(x));
  constexpr float kE4m3Max = 448.0F;
  const float scale = largest / kE4m3Max;
  for (std::size_t d = 0; d < kGenDim; ++d) codes[d] = e4m3_code(v[d] / scale);
  return scale;
}

}  // namespace dosa::io
