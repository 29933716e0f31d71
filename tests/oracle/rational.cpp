// SPDX-License-Identifier: Apache-2.0
#include "rational.hpp"

namespace dosa::oracle {

Rational dot(const RationalVector& a, const RationalVector& b) {
  Rational sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

Rational relu(const Rational& x) { return x > 0 ? x : Rational(0); }

RationalVector scaled(const RationalVector& a, const Rational& factor) {
  RationalVector result;
  for (const Rational& x : a) result.emplace_back(x * factor);
  return result;
}

RationalVector sum(const RationalVector& a, const RationalVector& b) {
  RationalVector result;
  for (std::size_t d = 0; d < a.size(); ++d) result.emplace_back(a[d] + b[d]);
  return result;
}

Rational root_down(const Rational& x, unsigned bits) {
  // sqrt(n/d) = sqrt(n d) / d
  mpz_class scaled_square = x.get_num() * x.get_den();
  scaled_square <<= 2 * bits;
  mpz_class denominator = x.get_den();
  denominator <<= bits;
  Rational root(sqrt(scaled_square), denominator);
  root.canonicalize();
  return root;
}

Rational root_up(const Rational& x, unsigned bits) {
  const Rational low = root_down(x, bits);
  if (low * low == x) return low;
  mpz_class denominator = x.get_den();
  denominator <<= bits;
  Rational step(1, denominator);
  step.canonicalize();
  return low + step;
}

bool at_most_roots(const Rational& left, const std::vector<Rational>& squares) {
  if (left <= 0) return true;
  if (squares.empty()) return false;
  if (squares.size() == 1) return left * left <= squares[0];
  constexpr unsigned kFirstBits = 128;
  constexpr unsigned kLastBits = 8192;
  for (unsigned bits = kFirstBits; bits <= kLastBits; bits *= 4) {
    Rational low = 0;
    Rational high = 0;
    for (const Rational& square : squares) {
      low += root_down(square, bits);
      high += root_up(square, bits);
    }
    if (left <= low) return true;
    if (left > high) return false;
  }
  return true;  // equal
}

Rational payload_score(const Heads& heads, const RationalVector& k) {
  Rational score = 0;
  for (std::size_t h = 0; h < heads.q.size(); ++h) score += heads.w[h] * relu(dot(heads.q[h], k));
  return score;
}

Rational projection(const RationalVector& q, const RationalVector& anchor) {
  const Rational square = dot(anchor, anchor);
  if (square == 0) return 0;
  return relu(dot(q, anchor) / square);
}

namespace {

bool projected(const Heads& heads, const Choice& choice, std::size_t h) {
  return heads.w[h] > 0 && !choice.retained[h];
}

Rational beta_of(const Heads& heads, const Choice& choice, std::size_t h) {
  if (choice.anchor[h] < 0) return 0;
  return projection(heads.q[h], heads.q[static_cast<std::size_t>(choice.anchor[h])]);
}

}  // namespace

std::vector<RationalVector> weighted_residuals(const Heads& heads, const Choice& choice) {
  std::vector<RationalVector> u;
  for (std::size_t h = 0; h < heads.q.size(); ++h) {
    if (!projected(heads, choice, h)) continue;
    RationalVector residual = heads.q[h];
    if (choice.anchor[h] >= 0) {
      const auto& anchor = heads.q[static_cast<std::size_t>(choice.anchor[h])];
      residual = sum(residual, scaled(anchor, -beta_of(heads, choice, h)));
    }
    u.push_back(scaled(residual, heads.w[h]));
  }
  return u;
}

std::vector<Rational> allowance_squares(const std::vector<RationalVector>& u, std::size_t first,
                                        std::size_t last, Allowance allowance) {
  const auto part = [first, last](const RationalVector& a, const RationalVector& b) {
    Rational sum = 0;
    for (std::size_t d = first; d < last; ++d) sum += a[d] * b[d];
    return sum;
  };
  std::vector<Rational> squares;
  if (allowance == Allowance::kTriangle) {
    for (const auto& v : u) squares.push_back(part(v, v));
    return squares;
  }
  Rational joint = 0;
  for (const auto& a : u) {
    for (const auto& b : u) joint += relu(part(a, b));
  }
  return {joint};
}

Bound certificate(const Heads& heads, const Choice& choice, const RationalVector& k,
                  Allowance allowance, std::size_t groups) {
  Bound bound{0, {}};
  for (std::size_t h = 0; h < heads.q.size(); ++h) {
    const Rational active = relu(dot(heads.q[h], k));
    if (choice.retained[h]) bound.exact_part += heads.w[h] * active;
    if (projected(heads, choice, h) && choice.anchor[h] >= 0) {  // folded into the anchor's weight
      const auto& anchor = heads.q[static_cast<std::size_t>(choice.anchor[h])];
      bound.exact_part += heads.w[h] * beta_of(heads, choice, h) * relu(dot(anchor, k));
    }
  }
  for (const RationalVector& a : choice.split) {
    RationalVector v(k.size(), 0);
    for (std::size_t h = 0; h < heads.q.size(); ++h) {
      if (heads.w[h] < 0 && !choice.retained[h]) v = sum(v, scaled(heads.q[h], -heads.w[h] * a[h]));
    }
    bound.exact_part -= relu(dot(v, k));
  }
  const auto u = weighted_residuals(heads, choice);
  const std::size_t width = k.size() / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = g * width;
    const std::size_t last = g + 1 == groups ? k.size() : first + width;
    Rational norm_square = 0;
    for (std::size_t d = first; d < last; ++d) norm_square += k[d] * k[d];
    for (const Rational& square : allowance_squares(u, first, last, allowance)) {
      bound.root_squares.emplace_back(square * norm_square);
    }
  }
  return bound;
}

bool dominates(const Bound& bound, const Rational& value) {
  return at_most_roots(value - bound.exact_part, bound.root_squares);
}

Rational real_score(const Problem& problem, std::int64_t row, std::int64_t key) {
  const std::int64_t d = problem.head_dim;
  const Vector k = decode(problem.k.data() + key * d, problem.head_dim);
  Rational score = 0;
  for (int h = 0; h < problem.num_heads; ++h) {
    const std::int64_t head = row * problem.num_heads + h;
    const Vector q = decode(problem.q.data() + head * d, problem.head_dim);
    const std::int64_t units = exact_dot(q, k);
    if (q.nan || k.nan || units <= 0) continue;
    const double weight = problem.weights[static_cast<std::size_t>(head)];
    score += Rational(weight) * Rational(static_cast<double>(units));
  }
  score *= Rational(static_cast<double>(problem.k_scale[static_cast<std::size_t>(key)]));
  mpq_div_2exp(score.get_mpq_t(), score.get_mpq_t(), 18);
  return score;
}

}  // namespace dosa::oracle
