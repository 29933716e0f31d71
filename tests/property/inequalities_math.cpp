// SPDX-License-Identifier: Apache-2.0
//
// The inequalities behind the certificate, as mathematics: exact rational arithmetic on small
// vectors, where parallel, opposite and zero heads are common. Nothing of the library takes part.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "oracle/properties.hpp"
#include "oracle/rational.hpp"

namespace dosa::oracle {

namespace {

constexpr int kCases = 6000;

RationalVector draw_vector(int dims) {
  const auto integers =
      *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(dims), small_integer(3));
  const int power = *small_integer(6);
  RationalVector v;
  for (const int x : integers) {
    Rational value(x);
    if (power >= 0) {
      mpq_mul_2exp(value.get_mpq_t(), value.get_mpq_t(), static_cast<mp_bitcnt_t>(power));
    } else {
      mpq_div_2exp(value.get_mpq_t(), value.get_mpq_t(), static_cast<mp_bitcnt_t>(-power));
    }
    v.push_back(value);
  }
  return v;
}

Rational draw_eighths(int bound) {
  Rational value(*small_integer(bound), 8);
  value.canonicalize();
  return value;
}

/// In [0, 1], the ends common.
Rational draw_fraction() {
  const int numerator = *rc::gen::inRange(0, 13);
  Rational value(std::clamp(numerator - 3, 0, 7), 7);
  value.canonicalize();
  return value;
}

struct Case {
  Heads heads;
  RationalVector k;
  Choice choice;
};

/// sign: 1 all weights positive, -1 all negative, 0 any. aggregates: how many (disjoint or split).
Case draw_case(int sign, int aggregates, bool fractional) {
  const int dims = *rc::gen::inRange(1, 6);
  const int count = *rc::gen::inRange(1, 7);
  Case c;
  c.k = draw_vector(dims);
  c.choice.split.assign(static_cast<std::size_t>(aggregates), {});
  for (int h = 0; h < count; ++h) {
    RationalVector q = draw_vector(dims);
    const int copy = *rc::gen::inRange(0, 8);  // now and then along, or against, an earlier vector
    if (copy == 5 && h > 0) q = scaled(c.heads.q[0], draw_eighths(12));
    if (copy == 6) q = scaled(c.k, draw_eighths(12));
    c.heads.q.push_back(q);
    const Rational w = draw_eighths(24);
    c.heads.w.push_back(sign == 0 ? w : Rational(sign * abs(w)));
    c.choice.retained.push_back(*rc::gen::inRange(0, 3) == 1);
    c.choice.anchor.push_back(-1);
    Rational left = 1;
    const int owner = *rc::gen::inRange(0, aggregates + 1);  // the last: in no aggregate
    for (int m = 0; m < aggregates; ++m) {
      Rational a = owner == m ? 1 : 0;
      if (fractional) a = left * draw_fraction();
      left -= a;
      c.choice.split[static_cast<std::size_t>(m)].push_back(a);
    }
  }
  std::vector<int> retained;
  for (int h = 0; h < count; ++h) {
    if (c.choice.retained[static_cast<std::size_t>(h)]) retained.push_back(h);
  }
  for (auto& anchor : c.choice.anchor) {
    const int pick = *rc::gen::inRange(0, 7);
    if (pick > 0 && !retained.empty()) {
      anchor = retained[static_cast<std::size_t>(pick) % retained.size()];
    }
  }
  return c;
}

Rational subtracted(const Case& c) {  // sum over N of |w_h| [q_h . k]+
  Rational total = 0;
  for (std::size_t h = 0; h < c.heads.q.size(); ++h) {
    if (c.heads.w[h] < 0) total -= c.heads.w[h] * relu(dot(c.heads.q[h], c.k));
  }
  return total;
}

/// v_m . k, v_m = sum_h a_{h,m} |w_h| q_h over the negative heads.
Rational aggregate(const Case& c, std::size_t m) {
  Rational total = 0;
  for (std::size_t h = 0; h < c.heads.q.size(); ++h) {
    if (c.heads.w[h] < 0) total -= c.choice.split[m][h] * c.heads.w[h] * dot(c.heads.q[h], c.k);
  }
  return total;
}

}  // namespace

TEST(Inequality, E2SubsetThresholdIsALowerBound) {
  check_cases(kCases, [] {
    const auto scores = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(small_integer(9)));
    std::vector<int> subset = {scores.front()};
    for (std::size_t i = 1; i < scores.size(); ++i) {
      if (*rc::gen::inRange(0, 2) == 1) subset.push_back(scores[i]);
    }
    const auto k =
        static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(subset.size())));
    auto all = scores;
    std::sort(all.begin(), all.end(), std::greater<>());
    std::sort(subset.begin(), subset.end(), std::greater<>());
    RC_ASSERT(subset[k] <= all[k]);
  });
}

TEST(Inequality, E3Projection) {
  check_cases(kCases, [] {
    const Case c = draw_case(1, 0, false);
    const RationalVector& q = c.heads.q.front();
    const RationalVector& anchor = c.heads.q.back();
    const Rational beta = projection(q, anchor);
    const RationalVector d = sum(q, scaled(anchor, -beta));
    const Rational excess = relu(dot(q, c.k)) - beta * relu(dot(anchor, c.k));
    RC_ASSERT(excess <= relu(dot(d, c.k)));
    RC_ASSERT(at_most_roots(excess, {dot(d, d) * dot(c.k, c.k)}));
    // beta minimises |d|, and any other beta >= 0 is valid too.
    const Rational other = abs(draw_eighths(40));
    const RationalVector e = sum(q, scaled(anchor, -other));
    RC_ASSERT(dot(d, d) <= dot(e, e));
    RC_ASSERT(at_most_roots(relu(dot(q, c.k)) - other * relu(dot(anchor, c.k)),
                            {dot(e, e) * dot(c.k, c.k)}));
  });
}

TEST(Inequality, E4FoldedWeightsAndTriangle) {
  check_cases(kCases, [] {
    const Case c = draw_case(1, 0, false);
    RC_ASSERT(dominates(certificate(c.heads, c.choice, c.k, Allowance::kTriangle),
                        payload_score(c.heads, c.k)));
  });
}

TEST(Inequality, JointAllowance) {
  check_cases(kCases, [] {
    const Case c = draw_case(1, 0, false);
    RC_ASSERT(dominates(certificate(c.heads, c.choice, c.k, Allowance::kJoint),
                        payload_score(c.heads, c.k)));
    // It is the largest of the subset sums, and never above the triangle: squared, term by term.
    const auto u = weighted_residuals(c.heads, c.choice);
    Rational active = 0;
    RationalVector subset(c.k.size(), 0);
    for (const auto& v : u) {
      active += relu(dot(v, c.k));
      if (dot(v, c.k) > 0) subset = sum(subset, v);
      for (const auto& w : u) RC_ASSERT(at_most_roots(dot(v, w), {dot(v, v) * dot(w, w)}));
    }
    RC_ASSERT(active == dot(subset, c.k));
    const Rational joint = allowance_squares(u, 0, c.k.size(), Allowance::kJoint)[0];
    RC_ASSERT(dot(subset, subset) <= joint);
    if (joint > 0) {
      const auto triangle = allowance_squares(u, 0, c.k.size(), Allowance::kTriangle);
      RC_ASSERT(at_most_roots(root_down(joint, 64), triangle));
    }
  });
}

TEST(Inequality, GroupedAllowances) {
  check_cases(kCases, [] {
    const Case c = draw_case(1, 0, false);
    const auto groups =
        static_cast<std::size_t>(*rc::gen::inRange<int>(1, static_cast<int>(c.k.size()) + 1));
    const Rational score = payload_score(c.heads, c.k);
    RC_ASSERT(dominates(certificate(c.heads, c.choice, c.k, Allowance::kTriangle, groups), score));
    RC_ASSERT(dominates(certificate(c.heads, c.choice, c.k, Allowance::kJoint, groups), score));
  });
}

TEST(Inequality, E5AnySupport) {
  check_cases(kCases, [] {
    const Case c = draw_case(-1, 1, false);
    RC_ASSERT(relu(aggregate(c, 0)) <= subtracted(c));
  });
}

TEST(Inequality, E5AnyFraction) {
  check_cases(kCases, [] {
    const Case c = draw_case(-1, 1, true);
    RC_ASSERT(relu(aggregate(c, 0)) <= subtracted(c));
  });
}

TEST(Inequality, E5TheActiveSupportIsExact) {
  check_cases(kCases, [] {
    Case c = draw_case(-1, 1, false);
    for (std::size_t h = 0; h < c.heads.q.size(); ++h) {
      c.choice.split[0][h] = dot(c.heads.q[h], c.k) > 0 ? 1 : 0;  // depends on the key
    }
    RC_ASSERT(aggregate(c, 0) == subtracted(c));
  });
}

TEST(Inequality, SeveralDisjointAggregates) {
  check_cases(kCases, [] {
    const int count = *rc::gen::inRange(2, 5);
    const Case c = draw_case(-1, count, false);
    Rational total = 0;
    for (std::size_t m = 0; m < c.choice.split.size(); ++m) total += relu(aggregate(c, m));
    RC_ASSERT(total <= subtracted(c));
  });
}

TEST(Inequality, FractionalSplits) {
  check_cases(kCases, [] {
    const int count = *rc::gen::inRange(2, 5);
    const Case c = draw_case(-1, count, true);
    Rational total = 0;
    for (std::size_t m = 0; m < c.choice.split.size(); ++m) total += relu(aggregate(c, m));
    RC_ASSERT(total <= subtracted(c));
  });
}

// The best of several candidates over the same heads, which need not be disjoint.
TEST(Inequality, BestOfCandidates) {
  check_cases(kCases, [] {
    Case c = draw_case(-1, 3, true);
    Rational best = 0;
    for (std::size_t m = 0; m < c.choice.split.size(); ++m) {
      for (auto& a : c.choice.split[m]) a = draw_fraction();
      best = std::max(best, aggregate(c, m));
    }
    RC_ASSERT(best <= subtracted(c));
  });
}

TEST(Inequality, SumsOverDisjointGroupsOfMaxima) {
  check_cases(kCases, [] {
    const Case c = draw_case(-1, 2, false);
    Case d = c;  // second candidates on the same two disjoint sets of heads
    Rational total = 0;
    for (std::size_t m = 0; m < 2; ++m) {
      for (auto& a : d.choice.split[m]) a *= draw_fraction();
      total += std::max({Rational(0), aggregate(c, m), aggregate(d, m)});
    }
    RC_ASSERT(total <= subtracted(c));
  });
}

TEST(Inequality, AbsoluteValueForm) {
  check_cases(kCases, [] {
    const Case c = draw_case(-1, 2, false);
    const Rational a = aggregate(c, 0);
    const Rational b = aggregate(c, 1);
    const Rational form = (a + b) / 2 + abs(a - b) / 2;
    RC_ASSERT(form == std::max(a, b));
    RC_ASSERT(form <= relu(a) + relu(b));  // so two aggregates dominate it at equal vectors
    RC_ASSERT(form <= subtracted(c));
  });
}

TEST(Inequality, E6Whole) {
  check_cases(kCases, [] {
    const int aggregates = *rc::gen::inRange(0, 4);
    const bool fractional = *rc::gen::arbitrary<bool>();
    const Case c = draw_case(0, aggregates, fractional);
    const Rational score = payload_score(c.heads, c.k);
    const auto groups =
        static_cast<std::size_t>(*rc::gen::inRange<int>(1, static_cast<int>(c.k.size()) + 1));
    for (const Allowance allowance : {Allowance::kTriangle, Allowance::kJoint}) {
      RC_ASSERT(dominates(certificate(c.heads, c.choice, c.k, allowance, groups), score));
    }
  });
}

TEST(Inequality, E6IsExactWhenAllHeadsAreRetained) {
  check_cases(kCases, [] {
    Case c = draw_case(0, 1, false);
    c.choice.retained.assign(c.choice.retained.size(), true);
    const Bound bound = certificate(c.heads, c.choice, c.k, Allowance::kTriangle);
    RC_ASSERT(bound.exact_part == payload_score(c.heads, c.k));
    RC_ASSERT(bound.root_squares.empty());
  });
}

// The bound holds in payload units; a negative key scale turns it round.
TEST(Inequality, NegativeScaleFlipsIt) {
  const Heads heads{{{1, 0}, {0, 1}}, {1, 1}};
  const Choice choice{{true, false}, {-1, 0}, {}};
  const RationalVector k{0, -1};
  const Bound bound = certificate(heads, choice, k, Allowance::kTriangle);
  EXPECT_EQ(payload_score(heads, k), 0);
  EXPECT_EQ(bound.exact_part, 0);
  ASSERT_EQ(bound.root_squares.size(), 1U);
  EXPECT_EQ(bound.root_squares[0], 1);  // U' = 1 > s' = 0, but -U' < -s'
}

// The comparisons used above can fail: a bound that misses its allowance is caught.
TEST(Inequality, TheComparisonsCanFail) {
  EXPECT_FALSE(at_most_roots(Rational(3, 2), {Rational(2)}));
  EXPECT_TRUE(at_most_roots(Rational(7, 5), {Rational(2)}));
  EXPECT_FALSE(at_most_roots(Rational(315, 100), {Rational(2), Rational(3)}));  // 3.1462...
  EXPECT_TRUE(at_most_roots(Rational(3146, 1000), {Rational(2), Rational(3)}));
  EXPECT_TRUE(at_most_roots(Rational(5), {Rational(4), Rational(9)}));
  EXPECT_FALSE(at_most_roots(Rational(1), {}));
  const Heads heads{{{1, 0}, {1, 1}}, {1, 1}};
  Choice choice{{true, false}, {-1, 0}, {}};
  Bound bound = certificate(heads, choice, {1, 1}, Allowance::kTriangle);
  EXPECT_TRUE(dominates(bound, payload_score(heads, {1, 1})));
  bound.root_squares.clear();
  EXPECT_FALSE(dominates(bound, payload_score(heads, {1, 1})));
}

}  // namespace dosa::oracle
