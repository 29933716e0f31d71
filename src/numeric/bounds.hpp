// SPDX-License-Identifier: Apache-2.0
// Certified and estimated numbers have different types, without conversions between them: only an
// UpperBound can reject a key, and only against a LowerBound of the K-th score.
#ifndef DOSA_NUMERIC_BOUNDS_HPP
#define DOSA_NUMERIC_BOUNDS_HPP

#include <limits>

namespace dosa {

/// A score in the engine's score model, bit for bit.
struct Score {
  float value;
  explicit constexpr Score(float v) : value(v) {}
};

/// Never below the score it stands for.
struct UpperBound {
  float value;
  explicit constexpr UpperBound(float v) : value(v) {}
};

/// Never above the K-th score of the row.
struct LowerBound {
  float value;
  explicit constexpr LowerBound(float v) : value(v) {}
};

/// A guess: it may steer the work, never reject a key.
struct Estimate {
  double value;
  explicit constexpr Estimate(double v) : value(v) {}
};

/// E6: U < tau proves that the key is not in the Top-K. Equality, NaN and infinite bounds survive.
constexpr bool rejects(UpperBound bound, LowerBound threshold) {
  return bound.value < threshold.value && bound.value >= std::numeric_limits<float>::lowest();
}

}  // namespace dosa

#endif  // DOSA_NUMERIC_BOUNDS_HPP
