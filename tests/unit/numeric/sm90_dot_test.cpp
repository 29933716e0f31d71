// SPDX-License-Identifier: Apache-2.0
//
// The software tensor core: against result bits read from the device, against itself, and its
// error against the proven bound.
#include "numeric/sm90_dot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "numeric/e4m3.hpp"

namespace dosa::test {
namespace {

using Codes = std::vector<std::uint8_t>;

constexpr std::uint8_t kOne = 0x38;
constexpr std::uint8_t kMinusOne = 0xb8;

struct GoldenCase {
  std::string input;
  int steps = 0;
  std::uint32_t start = 0;
  Codes a;
  Codes b;
  std::uint32_t result = 0;
};

Codes parse_codes(const std::string& hex) {
  Codes codes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    codes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return codes;
}

std::vector<GoldenCase> read_golden() {
  std::ifstream file(std::string(DOSA_TEST_DATA) + "/../golden/sm90_dot.txt");
  std::vector<GoldenCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    GoldenCase c;
    std::string a;
    std::string b;
    words >> c.input >> c.steps >> std::hex >> c.start >> a >> b >> c.result;
    c.a = parse_codes(a);
    c.b = parse_codes(b);
    cases.push_back(c);
  }
  return cases;
}

/// The sum of products in units of 2^-18; NaN codes count as 0.
std::int64_t exact_units(const Codes& a, const Codes& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<std::int64_t>(e4m3_units(a[i])) * e4m3_units(b[i]);
  }
  return sum;
}

std::uint32_t bits_of(const Codes& a, const Codes& b) {
  return sm90_dot_bits(a.data(), b.data(), static_cast<int>(a.size()));
}

/// |computed - exact| over the bound S9.
double error_over_bound(const Codes& a, const Codes& b) {
  const int dim = static_cast<int>(a.size());
  const double computed = std::bit_cast<float>(bits_of(a, b));
  const double error = std::abs(computed - static_cast<double>(exact_units(a, b)) * 0x1p-18);
  return error / sm90_error_bound(sm90_reach(a.data(), dim), sm90_reach(b.data(), dim), dim);
}

/// Finite codes of random magnitude: the exponent field lies within `spread` of the top one.
Codes random_codes(std::mt19937_64& random, std::size_t dim, unsigned spread) {
  Codes codes(dim);
  for (std::uint8_t& code : codes) {
    const std::uint64_t bits = random();
    const std::uint64_t field = 15 - (bits >> 8) % (spread + 1);
    code = static_cast<std::uint8_t>((bits & 0x87U) | (field << 3));
    if (e4m3_is_nan(code)) --code;
  }
  return codes;
}

Codes constant(std::size_t dim, std::uint8_t code) { return Codes(dim, code); }

TEST(Sm90Dot, EqualsTheDeviceBitForBit) {
  const std::vector<GoldenCase> cases = read_golden();
  ASSERT_EQ(cases.size(), 336U);
  int inexact = 0;
  for (const GoldenCase& c : cases) {
    ASSERT_EQ(c.a.size(), static_cast<std::size_t>(c.steps) * kSm90StepLength);
    std::uint32_t bits = c.start;
    for (int s = 0; s < c.steps; ++s) {
      bits = sm90_step(c.a.data() + s * kSm90StepLength, c.b.data() + s * kSm90StepLength, bits);
    }
    EXPECT_EQ(bits, c.result) << c.input << ", " << c.steps << " steps";
    const auto rounded = static_cast<float>(static_cast<double>(exact_units(c.a, c.b)) * 0x1p-18);
    if (c.steps > 1 && c.input != "invalid") {
      inexact += std::bit_cast<std::uint32_t>(rounded) != c.result ? 1 : 0;
    }
  }
  // The file would prove little if exact arithmetic reproduced it as well.
  EXPECT_GT(inexact, 120);
}

TEST(Sm90Dot, DropsWhatLiesBelowThirteenBits) {
  Codes a = constant(32, 0);
  Codes b = constant(32, 0);
  a[0] = b[0] = kOne;
  a[1] = kOne;
  b[1] = kMinusOne;
  a[2] = 0x04;  // 2^-7
  b[2] = 0x08;  // 2^-6
  EXPECT_EQ(bits_of(a, b), std::bit_cast<std::uint32_t>(0x1p-13F));
  a[2] = 0x02;  // 2^-8
  EXPECT_EQ(bits_of(a, b), 0U);
  b[2] = 0x88;  // negative: toward zero, not down
  EXPECT_EQ(bits_of(a, b), 0U);
}

TEST(Sm90Dot, ZerosTakeNoPartInTheAlignment) {
  Codes a = constant(32, 0);
  Codes b = constant(32, 0x7e);  // 0 * 448 everywhere else
  a[5] = b[5] = 0x01;            // 2^-18
  EXPECT_EQ(bits_of(a, b), std::bit_cast<std::uint32_t>(0x1p-18F));
}

TEST(Sm90Dot, SubnormalCodesKeepTheirFieldExponent) {
  Codes a = constant(32, 0);
  Codes b = constant(32, 0);
  a[0] = a[1] = 0x01;  // 2^-9 * 256 and its negative: exponent -6 + 8, not -1
  b[0] = 0x78;
  b[1] = 0xf8;
  a[2] = 0x08;  // 2^-6 * 2^-6
  b[2] = 0x08;
  EXPECT_EQ(bits_of(a, b), 0U);
  b[2] = 0x10;  // 2^-11 = 2^(2 - 13)
  EXPECT_EQ(bits_of(a, b), std::bit_cast<std::uint32_t>(0x1p-11F));
}

TEST(Sm90Dot, AnInvalidCodeAnywhereGivesTheHardwaresNan) {
  for (const std::uint8_t code : Codes{0x7f, 0xff}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{40}, std::size_t{127}}) {
      Codes a = constant(128, kOne);
      const Codes b = constant(128, 0);
      a[at] = code;
      EXPECT_EQ(bits_of(a, b), kSm90NanBits);
      EXPECT_EQ(bits_of(b, a), kSm90NanBits);
    }
  }
}

TEST(Sm90Dot, IgnoresTheOrderWithinAStepButNotBetweenSteps) {
  std::mt19937_64 random(3);
  int changed = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Codes a = random_codes(random, 64, 12);
    const Codes b = random_codes(random, 64, 12);
    std::array<std::size_t, 32> order{};
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    Codes a_within(64);
    Codes b_within(64);
    Codes a_across(64);
    Codes b_across(64);
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t from = i / 32 * 32 + order[i % 32];
      a_within[i] = a[from];
      b_within[i] = b[from];
      a_across[i] = a[i ^ 32U];
      b_across[i] = b[i ^ 32U];
    }
    EXPECT_EQ(bits_of(a, b), bits_of(a_within, b_within));
    EXPECT_EQ(bits_of(a, b), bits_of(b, a));
    changed += bits_of(a, b) != bits_of(a_across, b_across) ? 1 : 0;
  }
  EXPECT_GT(changed, 20);
}

TEST(Sm90Dot, BatchEqualsSingle) {
  std::mt19937_64 random(4);
  for (const int dim : {32, 64, 128, 256, 288}) {
    constexpr int kHeads = 9;
    const auto length = static_cast<std::size_t>(dim);
    Codes q;
    for (int h = 0; h < kHeads; ++h) {
      const Codes head = random_codes(random, length, static_cast<unsigned>(h + 3));
      q.insert(q.end(), head.begin(), head.end());
    }
    q[3] = 0x7f;
    q[length] = 0;
    const Codes k = random_codes(random, length, 15);
    std::array<float, kHeads> dots{};
    sm90_head_dots(q.data(), k.data(), kHeads, dim, dots.data());
    for (int h = 0; h < kHeads; ++h) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(dots[static_cast<std::size_t>(h)]),
                sm90_dot_bits(q.data() + h * dim, k.data(), dim));
    }
  }
}

TEST(Sm90Dot, ErrorStaysWithinTheBound) {
  std::mt19937_64 random(5);
  double worst = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const std::size_t dim = std::size_t{32} << trial % 3;
    Codes a = random_codes(random, dim, static_cast<unsigned>(trial % 16));
    Codes b = random_codes(random, dim, static_cast<unsigned>(trial / 16 % 16));
    if (trial % 4 == 0) {
      for (std::size_t i = 0; i < dim; ++i) {  // all products positive
        a[i] &= 0x7fU;
        b[i] &= 0x7fU;
      }
    }
    worst = std::max(worst, error_over_bound(a, b));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_GT(worst, 0.1);
}

TEST(Sm90Dot, TheBoundIsNearlyReached) {
  // 32 ones make the accumulator 32, whose last kept bit is 2^-8; every later product is
  // 126/64 * 2^-9 and vanishes.
  Codes a = constant(128, 0x19);
  Codes b = constant(128, 0x16);
  for (std::size_t i = 0; i < 32; ++i) a[i] = b[i] = kOne;
  EXPECT_EQ(bits_of(a, b), std::bit_cast<std::uint32_t>(32.0F));
  EXPECT_GT(error_over_bound(a, b), 0.9);
  EXPECT_LE(error_over_bound(a, b), 1.0);
}

TEST(Sm90Dot, EveryLargeTermOfTheBoundIsNeeded) {
  const auto error_of = [](const Codes& a, const Codes& b) {
    const double computed = std::bit_cast<float>(bits_of(a, b));
    return std::abs(computed - static_cast<double>(exact_units(a, b)) * 0x1p-18);
  };
  // The largest product, 8, hides 31 products of 126/64 * 2^-11 below its last kept bit, 2^-10.
  Codes a = constant(32, 0x11);
  Codes b = constant(32, 0x0e);
  a[0] = 0x50;
  b[0] = kOne;
  Sm90Reach reach_a = sm90_reach(a.data(), 32);
  Sm90Reach reach_b = sm90_reach(b.data(), 32);
  EXPECT_LE(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));
  reach_a.top = 0;
  EXPECT_GT(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));

  // The accumulator, 32, does the same in three later k-steps.
  a = constant(128, 0x19);
  b = constant(128, 0x16);
  for (std::size_t i = 0; i < 32; ++i) a[i] = b[i] = kOne;
  reach_a = sm90_reach(a.data(), 128);
  reach_b = sm90_reach(b.data(), 128);
  EXPECT_LE(error_of(a, b), sm90_error_bound(reach_a, reach_b, 128));
  reach_a.reach = 0;
  EXPECT_GT(error_of(a, b), sm90_error_bound(reach_a, reach_b, 128));

  // A sum of 31 products of 1.875 * 1.875 cuts a product of 1.875 * 2^-8 off its own end.
  a = constant(32, 0x3f);
  b = constant(32, 0x3f);
  a[0] = 0x08;
  b[0] = 0x2f;
  reach_a = sm90_reach(a.data(), 32);
  reach_b = sm90_reach(b.data(), 32);
  EXPECT_LE(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));
  reach_a.norm = 0;
  EXPECT_GT(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));

  // Subnormal codes align by the exponent -6: 2^-9 * 256 hides what is below 2^-11.
  a = constant(32, 0x01);
  b = constant(32, 0x26);
  b[0] = 0x78;
  reach_a = sm90_reach(a.data(), 32);
  reach_b = sm90_reach(b.data(), 32);
  EXPECT_EQ(reach_a.top, 0x1p-6);
  EXPECT_LE(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));
  reach_a.top = 0x1p-9;
  EXPECT_GT(error_of(a, b), sm90_error_bound(reach_a, reach_b, 32));
}

TEST(Sm90Dot, TheBoundItselfRoundsUp) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 1000; ++trial) {
    const Codes x = random_codes(random, 128, static_cast<unsigned>(trial % 16));
    const Codes y = random_codes(random, 128, static_cast<unsigned>(trial / 16 % 16));
    const Sm90Reach a = sm90_reach(x.data(), 128);
    const Sm90Reach b = sm90_reach(y.data(), 128);
    const auto times = [](double u, double v) { return static_cast<long double>(u) * v; };
    const long double exact = 0x1p-13L * (127 * times(a.top, b.top) + 33 * times(a.reach, b.reach) +
                                          times(a.norm, b.norm));
    EXPECT_GE(static_cast<long double>(sm90_error_bound(a, b, 128)), exact * (1 - 0x1p-60L));
  }
}

TEST(Sm90Reach, RoundsUp) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 1000; ++trial) {
    const Codes x = random_codes(random, 128, static_cast<unsigned>(trial % 16));
    const Sm90Reach reach = sm90_reach(x.data(), 128);
    std::int64_t squares = 0;
    std::int64_t weighted = 0;
    for (std::size_t d = 0; d < 128; ++d) {
      const std::int64_t units = e4m3_units(x[d]);
      squares += units * units;
      weighted += units * units * (3 - static_cast<std::int64_t>(d / 32));
    }
    const auto square = [](double v) { return static_cast<long double>(v) * v * 0x1p18L; };
    EXPECT_GE(square(reach.norm), static_cast<long double>(squares));
    EXPECT_GE(square(reach.reach), static_cast<long double>(weighted));
    EXPECT_LE(square(reach.reach), static_cast<long double>(weighted) * (1 + 0x1p-28L));
  }
}

}  // namespace
}  // namespace dosa::test
