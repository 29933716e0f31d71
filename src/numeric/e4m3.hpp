// SPDX-License-Identifier: Apache-2.0
// The 256 codes of float8 e4m3fn (1 sign, 4 exponent, 3 mantissa bits, bias 7, no infinities).
#ifndef DOSA_NUMERIC_E4M3_HPP
#define DOSA_NUMERIC_E4M3_HPP

#include <array>
#include <cstdint>

namespace dosa {

inline constexpr int kE4m3UnitExponent = -9;  // every finite value is a multiple of 2^-9
inline constexpr int kE4m3MaxUnits = 448 * 512;

constexpr bool e4m3_is_nan(std::uint8_t code) { return (code & 0x7F) == 0x7F; }

/// The value in units of 2^-9. NaN codes give 0: a NaN dot product counts as 0 after the ReLU, so
/// a vector with a NaN code scores exactly like the zero vector (docs/numerics.md).
constexpr std::int32_t e4m3_units(std::uint8_t code) {
  if (e4m3_is_nan(code)) return 0;
  const std::int32_t exponent = (code >> 3) & 15;
  const std::int32_t mantissa = code & 7;
  const std::int32_t magnitude = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

inline constexpr std::array<std::int32_t, 256> kE4m3Units = [] {
  std::array<std::int32_t, 256> table{};
  for (int code = 0; code < 256; ++code) {
    table[static_cast<std::size_t>(code)] = e4m3_units(static_cast<std::uint8_t>(code));
  }
  return table;
}();

}  // namespace dosa

#endif  // DOSA_NUMERIC_E4M3_HPP
