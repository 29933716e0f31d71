// SPDX-License-Identifier: Apache-2.0
//
// Directed rounding and the constants of the envelope, against exact rational arithmetic.
#include "numeric/outward.hpp"

#include <gmpxx.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace dosa::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

/// round_up gives a float at or above x with none between; round_down likewise below.
void expect_tight(double x) {
  const float up = round_up(x);
  const float down = round_down(x);
  ASSERT_GE(static_cast<double>(up), x);
  ASSERT_LE(static_cast<double>(down), x);
  ASSERT_LT(static_cast<double>(std::nextafter(up, -kInfinity)), x);
  ASSERT_GT(static_cast<double>(std::nextafter(down, kInfinity)), x);
}

TEST(RoundUp, IsTheLeastFloatNotBelow) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200000; ++trial) {
    const double fraction = 1.0 + static_cast<double>(random() >> 12) * 0x1p-52;
    const int exponent = static_cast<int>(random() % 280) - 152;  // below, in and above subnormals
    const double x = std::ldexp(random() % 2 == 0 ? fraction : -fraction, exponent);
    if (std::fabs(x) > kLargest) continue;
    ASSERT_NO_FATAL_FAILURE(expect_tight(x)) << std::hexfloat << x;
  }
}

TEST(RoundUp, KeepsFloats) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200000; ++trial) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(round_up(value), value);
    ASSERT_EQ(round_down(value), value);
  }
}

TEST(RoundUp, BetweenNeighboursOfEverySpecialValue) {
  const float specials[] = {0.0F,  kLeast,  0x1p-126F,  0x1.fffffcp-127F, 1.0F,
                            -1.0F, -kLeast, -0x1p-126F, 0x1.fffffep126F,  -0x1.fffffep126F};
  for (const float value : specials) {
    const auto middle = [value](float neighbour) {
      return (static_cast<double>(value) + static_cast<double>(neighbour)) / 2;
    };
    ASSERT_NO_FATAL_FAILURE(expect_tight(middle(std::nextafter(value, kInfinity)))) << value;
    ASSERT_NO_FATAL_FAILURE(expect_tight(middle(std::nextafter(value, -kInfinity)))) << value;
  }
}

TEST(RoundUp, AtTheEndsOfTheRange) {
  const double denormal = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(round_up(denormal), kLeast);
  EXPECT_EQ(round_up(-denormal), 0.0F);
  EXPECT_EQ(round_down(denormal), 0.0F);
  EXPECT_EQ(round_down(-denormal), -kLeast);
  EXPECT_EQ(round_up(kLargest * (1.0 + 0x1p-50)), kInfinity);
  EXPECT_EQ(round_up(-kLargest * (1.0 + 0x1p-50)), -kLargest);
  EXPECT_EQ(round_down(1e300), kLargest);
  EXPECT_EQ(round_up(-1e300), -kLargest);
  EXPECT_EQ(round_up(kInfinity), kInfinity);
  EXPECT_EQ(round_up(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(round_up(std::nan(""))));
  EXPECT_TRUE(std::isnan(round_down(std::nan(""))));
}

// N1: products of n factors 1 + d or 1 / (1 + d), |d| <= u, are within gamma_n of 1.
TEST(Gamma, EnclosesEveryProductOfRoundings) {
  const mpq_class u(kUnitRoundoff);
  mpq_class up = 1;       // (1 + u)^n
  mpq_class down = 1;     // (1 - u)^n
  mpq_class inverse = 1;  // (1 - u)^-n
  for (int n = 1; n <= 160; ++n) {
    up *= 1 + u;
    down *= 1 - u;
    inverse /= 1 - u;
    const mpq_class bound(gamma(n));
    ASSERT_GE(bound, n * u / (1 - n * u)) << n;
    ASSERT_LE(bound, n * u * (1 + mpq_class(0x1p-16))) << n;
    ASSERT_LE(up - 1, bound) << n;
    ASSERT_LE(1 - down, bound) << n;
    ASSERT_LE(inverse - 1, bound) << n;
  }
}

TEST(Gamma, AddsUp) {
  for (int a = 1; a <= 150; ++a) {
    for (int b = 1; b <= 150; ++b) {
      const mpq_class first(gamma(a));
      const mpq_class second(gamma(b));
      ASSERT_LE(first + second + first * second, mpq_class(gamma(a + b)) * (1 + mpq_class(0x1p-29)))
          << a << " " << b;
    }
  }
}

// Sums of 2^20 numbers of different sizes: some come out too small, none after `outward`.
TEST(Outward, CoversLongSums) {
  std::mt19937_64 random(3);
  int too_small = 0;
  for (int trial = 0; trial < 8; ++trial) {
    double sum = 0.0;
    mpz_class exact = 0;
    for (int n = 0; n < 1 << 20; ++n) {
      const std::uint64_t integer = random() >> 11 >> random() % 40;
      sum += static_cast<double>(integer);
      exact += static_cast<unsigned long>(integer);
    }
    too_small += mpz_class(sum) < exact ? 1 : 0;
    EXPECT_GE(mpq_class(outward(sum)), exact);
  }
  EXPECT_GT(too_small, 0);
}

}  // namespace
}  // namespace dosa::test
