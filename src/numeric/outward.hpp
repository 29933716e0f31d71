// SPDX-License-Identifier: Apache-2.0
// Outward rounding on the host: results never smaller than the exact value of what they stand for.
// Sums and products of non-negative doubles carry a relative error below (n + 2) 2^-53; one factor
// covers every use here (n <= 2^20), far below what the fp32 terms need (docs/numerics.md).
#ifndef DOSA_NUMERIC_OUTWARD_HPP
#define DOSA_NUMERIC_OUTWARD_HPP

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dosa {

inline constexpr double kDoubleSlack = 1.0 + 0x1p-30;  // >= (1 + 2^-53)^n for n <= 2^22
inline constexpr double kUnitRoundoff = 0x1p-24;       // fp32, round to nearest
inline constexpr double kUnderflowUnit = 0x1p-149;     // smallest positive fp32

/// Upper bound of a non-negative double that was computed with at most 2^22 roundings.
inline double outward(double x) { return x * kDoubleSlack; }

/// Smallest float >= x; +Inf above the largest float.
inline float round_up(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) >= x || std::isnan(x)) return nearest;
  if (nearest == 0.0F) return std::numeric_limits<float>::denorm_min();
  // The neighbour towards +Inf: codes of positive floats ascend, those of negative ones descend.
  const auto code = std::bit_cast<std::uint32_t>(nearest);
  return std::bit_cast<float>(nearest > 0.0F ? code + 1 : code - 1);
}

/// Largest float <= x.
inline float round_down(double x) { return -round_up(-x); }

/// n roundings: gamma_n = n u / (1 - n u), itself rounded up.
inline double gamma(int n) {
  const double nu = n * kUnitRoundoff;
  return outward(nu / (1.0 - nu));
}

}  // namespace dosa

#endif  // DOSA_NUMERIC_OUTWARD_HPP
