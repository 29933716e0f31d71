// SPDX-License-Identifier: Apache-2.0
//
// The certificate (E1 to E6) in exact rational arithmetic, from the definitions. Square roots stay
// symbolic: a bound is a rational part plus a sum of roots, and comparisons with it are exact.
#pragma once

#include <gmpxx.h>

#include <vector>

#include "oracle.hpp"

namespace dosa::oracle {

using Rational = mpq_class;
using RationalVector = std::vector<Rational>;

[[nodiscard]] Rational dot(const RationalVector& a, const RationalVector& b);
[[nodiscard]] Rational relu(const Rational& x);
[[nodiscard]] RationalVector scaled(const RationalVector& a, const Rational& factor);
[[nodiscard]] RationalVector sum(const RationalVector& a, const RationalVector& b);

/// Largest (smallest) multiple of 2^-bits / denominator(x) below (above) the root of x >= 0.
[[nodiscard]] Rational root_down(const Rational& x, unsigned bits);
[[nodiscard]] Rational root_up(const Rational& x, unsigned bits);

/// Whether left <= sum_i sqrt(squares[i]). One root is compared exactly by squaring; more by
/// enclosures that are refined until they decide, or until a difference could not be told from
/// equality (2^-8192).
[[nodiscard]] bool at_most_roots(const Rational& left, const std::vector<Rational>& squares);

/// One query row: vectors q_h and signed weights w_h.
struct Heads {
  std::vector<RationalVector> q;
  RationalVector w;
};

/// E1 without the key's scale: sum_h w_h [q_h . k]+.
[[nodiscard]] Rational payload_score(const Heads& heads, const RationalVector& k);

/// What a certificate chooses. Any choice is valid; it decides tightness only.
struct Choice {
  std::vector<bool> retained;
  std::vector<int> anchor;            // of an omitted positive head: a retained head, or -1
  std::vector<RationalVector> split;  // [m][h]: a_{h,m} >= 0, sum over m <= 1
};

enum class Allowance { kTriangle, kJoint };

/// E6 for one key: at least exact_part + sum_i sqrt(root_squares[i]).
struct Bound {
  Rational exact_part;
  std::vector<Rational> root_squares;
};

/// beta = max(0, q.p / |p|^2), 0 for a zero anchor (E3).
[[nodiscard]] Rational projection(const RationalVector& q, const RationalVector& anchor);

/// u_h = w_h (q_h - beta_h q_a(h)) of the omitted positive heads (E4).
[[nodiscard]] std::vector<RationalVector> weighted_residuals(const Heads& heads,
                                                             const Choice& choice);

/// The squares whose roots add up to the allowance for vectors u over coordinates [first, last).
[[nodiscard]] std::vector<Rational> allowance_squares(const std::vector<RationalVector>& u,
                                                      std::size_t first, std::size_t last,
                                                      Allowance allowance);

/// E6 with coordinates split into `groups` equal parts for the allowance (1: not split).
[[nodiscard]] Bound certificate(const Heads& heads, const Choice& choice, const RationalVector& k,
                                Allowance allowance, std::size_t groups = 1);

[[nodiscard]] bool dominates(const Bound& bound, const Rational& value);

/// The real number that one key's score stands for (E1); every input must be finite, NaN codes
/// count as zero vectors.
[[nodiscard]] Rational real_score(const Problem& problem, std::int64_t row, std::int64_t key);

}  // namespace dosa::oracle
