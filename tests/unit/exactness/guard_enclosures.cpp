// SPDX-License-Identifier: Apache-2.0
//
// The numbers a bound is made of, each against its exact rational value: key norms (N4), screening
// rows (N5), coefficients (N6) and allowances (N7) lie on the safe side for every input tried, and
// the plain floating-point value does not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "oracle/rational.hpp"
#include "screening_bench.hpp"

namespace dosa::test {
namespace {

using oracle::Random;
using oracle::Rational;
using oracle::RationalVector;

Rational exact(double x) { return Rational(x); }

oracle::Problem random_row(std::uint64_t seed, int heads, int keys) {
  Random random(seed);
  oracle::Recipe recipe;
  recipe.kind = static_cast<oracle::Kind>(random.between(4, 6));  // real, codes, parallel
  recipe.weights = random.once_in(2) ? oracle::Weights::kSigned : oracle::Weights::kWide;
  recipe.num_queries = 1;
  recipe.num_heads = heads;
  recipe.sixteenths = static_cast<int>(random.between(1, 16));
  recipe.num_keys = keys;
  recipe.seed = seed;
  oracle::Problem p = oracle::make_problem(recipe);
  // Some heads almost along the first: residuals cancel.
  for (int h = 1; h < heads; h += 3) {
    for (int d = 0; d < p.head_dim; ++d) {
      p.q[static_cast<std::size_t>(h * p.head_dim + d)] = p.q[static_cast<std::size_t>(d)];
    }
    if (random.once_in(2)) p.q[static_cast<std::size_t>(h * p.head_dim)] ^= 1;
  }
  for (auto& code : p.q) code = (code & 0x7f) == 0x7f ? 0x7e : code;
  return p;
}

RationalVector exact_head(const oracle::Problem& p, int h) {
  RationalVector v;
  const auto decoded = oracle::decode(p.q.data() + h * p.head_dim, p.head_dim);
  for (const auto x : decoded.units) v.emplace_back(x);
  return v;
}

TEST(GuardEnclosures, KeyNormsAndTheirParts) {
  int plain_fails = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const oracle::Problem p = random_row(seed, 1, 64);
    ScreeningBench bench(p, ScreeningBench::kGroups);
    for (int i = 0; i < 64; ++i) {
      const auto key = oracle::decode(p.k.data() + i * p.head_dim, p.head_dim);
      const Rational unit = 1 << bench.tile.shift[i];
      Rational square = 0;
      Rational low_square = 0;
      Rational hat_square = 0;
      RationalVector group_square(ScreeningBench::kGroups, 0);
      for (int d = 0; d < p.head_dim; ++d) {
        const Rational x = key.units[static_cast<std::size_t>(d)];
        const Rational low = x - unit * bench.tile.rows[i * p.head_dim + d];
        const Rational hat = bench.tile.rows[i * p.head_dim + d];
        square += x * x;
        hat_square += hat * hat;
        low_square += low * low;
        const int width = p.head_dim / ScreeningBench::kGroups;
        group_square[static_cast<std::size_t>(d / width)] += x * x;
      }
      ASSERT_LT(hat_square, Rational(0x1p30));
      const auto encloses = [&unit](float norm, const Rational& squared) {
        const Rational value = exact(norm) * unit;
        return value * value >= squared;
      };
      ASSERT_TRUE(encloses(bench.tile.norm[i], square)) << seed << " " << i;
      ASSERT_TRUE(encloses(bench.tile.low_norm[i], low_square)) << seed << " " << i;
      for (int g = 0; g < ScreeningBench::kGroups; ++g) {
        ASSERT_TRUE(encloses(bench.tile.group_norm[g * bench.tile.capacity + i],
                             group_square[static_cast<std::size_t>(g)]));
      }
      const auto plain = static_cast<float>(std::sqrt(square.get_d()) / unit.get_d());
      plain_fails += encloses(plain, square) ? 0 : 1;
    }
  }
  EXPECT_GT(plain_fails, 100);  // of 3,840: rounding to nearest is not enough
}

/// u_h = w_h (q_h - beta_h q_a(h)) with the beta that is stored.
std::vector<RationalVector> exact_residuals(const oracle::Problem& p,
                                            const plan::Certificate& certificate) {
  std::vector<RationalVector> residuals;
  for (int h = 0; h < p.num_heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    if (certificate.role[at] != plan::Role::kProjected) continue;
    RationalVector u = exact_head(p, h);
    if (certificate.anchor[at] >= 0) {
      u = oracle::sum(
          u, oracle::scaled(exact_head(p, certificate.anchor[at]), -exact(certificate.beta[at])));
    }
    residuals.push_back(oracle::scaled(u, exact(p.weights[at])));
  }
  return residuals;
}

bool encloses_roots(double value, const std::vector<Rational>& squares) {
  Rational sum = 0;
  for (const Rational& square : squares) sum += oracle::root_up(square, 128);
  return exact(value) >= sum;
}

TEST(GuardEnclosures, Allowances) {
  int tried = 0;
  int plain_fails = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed + 1000);
    const oracle::Problem p = random_row(seed, static_cast<int>(random.between(2, 12)), 1);
    for (const auto form : {DOSA_ALLOWANCE_BEST, DOSA_ALLOWANCE_TRIANGLE, DOSA_ALLOWANCE_JOINT,
                            DOSA_ALLOWANCE_GROUPED}) {
      ScreeningBench bench(p, ScreeningBench::kGroups);
      plan::CertificateOptions options;
      options.retained = 1;
      options.allowance = form;
      options.projection = seed % 5 != 0;
      bench.plan_by_rule(options);
      const auto& certificate = bench.certificate;
      const auto u = exact_residuals(p, certificate);
      if (u.empty()) continue;
      const auto dims = static_cast<std::size_t>(p.head_dim);
      const auto triangle = oracle::allowance_squares(u, 0, dims, oracle::Allowance::kTriangle);
      const auto joint = oracle::allowance_squares(u, 0, dims, oracle::Allowance::kJoint);
      // The joint form is never above the triangle, so it is the least any of them may be.
      ASSERT_TRUE(encloses_roots(certificate.allowance, joint)) << seed << " form " << form;
      if (form == DOSA_ALLOWANCE_TRIANGLE) {
        ASSERT_TRUE(encloses_roots(certificate.allowance, triangle)) << seed;
        ++tried;
        double plain = 0.0;
        for (const Rational& square : triangle) plain += std::sqrt(square.get_d());
        plain_fails += encloses_roots(plain, triangle) ? 0 : 1;
      }
      for (int g = 0; g < certificate.groups; ++g) {
        const std::size_t width = dims / static_cast<std::size_t>(certificate.groups);
        const std::size_t first = width * static_cast<std::size_t>(g);
        ASSERT_TRUE(encloses_roots(
            certificate.group_allowance[static_cast<std::size_t>(g)],
            oracle::allowance_squares(u, first, first + width, oracle::Allowance::kJoint)));
      }
    }
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(plain_fails, tried / 10);
}

TEST(GuardEnclosures, CoefficientsOfRetainedHeads) {
  int plain_fails = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const oracle::Problem p = random_row(seed, 12, 1);
    ScreeningBench bench(p);
    plan::CertificateOptions options;
    options.retained = 3;
    bench.plan_by_rule(options);
    static_cast<void>(bench.build());
    const auto& certificate = bench.certificate;
    for (int n = 0; n < certificate.num_retained; ++n) {
      const int j = certificate.retained[static_cast<std::size_t>(n)];
      Rational folded = exact(p.weights[static_cast<std::size_t>(j)]);
      for (std::size_t h = 0; h < 12; ++h) {
        if (certificate.role[h] == plan::Role::kProjected && certificate.anchor[h] == j) {
          folded += exact(p.weights[h]) * exact(certificate.beta[h]);
        }
      }
      folded *= 1 << bench.rows.shift[j];
      ASSERT_GE(exact(bench.operand.coefficient[n]), folded) << seed << " head " << j;
      plain_fails += exact(static_cast<float>(folded.get_d())) < folded ? 1 : 0;
    }
  }
  EXPECT_GT(plain_fails, 30);
}

// What the rows stored for screening lose, and what they hold, is enclosed by the two terms.
TEST(GuardEnclosures, ScreeningRows) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const oracle::Problem p = random_row(seed, 12, 1);
    for (const auto form : {DOSA_AGGREGATE_ALL, DOSA_AGGREGATE_TWO, DOSA_AGGREGATE_ABSOLUTE}) {
      ScreeningBench bench(p);
      plan::CertificateOptions options;
      options.retained = 2;
      options.aggregate = form;
      bench.plan_by_rule(options);
      const plan::Envelope envelope = bench.build();
      Rational low = 0;
      for (int r = 0; r < bench.operand.rows; ++r) {
        Rational square = 0;
        for (int d = 0; d < p.head_dim / 2; ++d) {
          const std::int32_t pair = bench.operand.pairs[r * (p.head_dim / 2) + d];
          const int first = static_cast<std::int16_t>(pair & 0xffff);
          const int second = static_cast<std::int16_t>(pair >> 16);
          ASSERT_GT(std::min(first, second), -32768);
          square += first * first + static_cast<std::int64_t>(second) * second;
        }
        // With key rows below 2^15 (checked above), partial sums stay below 2^31 (N3).
        ASSERT_LT(square, Rational(0x1p32));
        low += oracle::root_up(square, 96) * abs(exact(bench.operand.coefficient[r]));
      }
      ASSERT_GE(exact(envelope.low), low) << seed << " form " << form;
    }
  }
}

// N8: gamma_n >= n u / (1 - n u) for every count in use.
TEST(GuardEnclosures, Gamma) {
  for (int n = 0; n <= 512; ++n) {
    const Rational nu = Rational(n) * exact(0x1p-24);
    ASSERT_GE(exact(gamma(n)), nu / (1 - nu)) << n;
  }
}

TEST(GuardEnclosures, DirectedRounding) {
  Random random(5);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::ldexp(random.normal(), static_cast<int>(random.between(-170, 130)));
    ASSERT_GE(static_cast<double>(round_up(x)), x);
    ASSERT_LE(static_cast<double>(round_down(x)), x);
    if (std::fabs(x) < 3e38) {
      ASSERT_LT(static_cast<double>(std::nextafterf(round_up(x), -3e38F)), x);
    }
  }
  EXPECT_EQ(round_up(1e39), std::numeric_limits<float>::infinity());
  EXPECT_EQ(round_up(0x1p-200), 0x1p-149F);
  EXPECT_EQ(round_up(-0x1p-200), -0.0F);
}

// N11: for every threshold, a computed bound that the guard rejects lies below the threshold by
// more than its last rounding and underflow can hide.
TEST(GuardEnclosures, GuardedThreshold) {
  Random random(6);
  for (int i = 0; i < 200000; ++i) {
    const auto tau = static_cast<float>(
        std::ldexp(random.normal(), static_cast<int>(random.between(-152, 120))));
    const float guarded = screen::guarded_threshold(tau).value;
    ASSERT_LT(guarded, tau);
    // The largest computed value that is rejected, and all that may have been lost before it.
    const double value = std::nextafterf(guarded, -3e38F);
    const Rational real =
        exact(value) + exact(std::fabs(value)) * exact(0x1p-24) + 5 * exact(0x1p-150);
    ASSERT_LT(real, exact(tau)) << tau;
    ASSERT_GE(exact(screen::certified_bound(static_cast<float>(value)).value), real);
  }
  EXPECT_EQ(screen::guarded_threshold(-INFINITY).value, -INFINITY);
  EXPECT_LT(screen::guarded_threshold(0.0F).value, 0.0F);
}

}  // namespace
}  // namespace dosa::test
