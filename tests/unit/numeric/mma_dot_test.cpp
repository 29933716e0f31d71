// SPDX-License-Identifier: Apache-2.0
//
// The software mma.sync: designed sums, the model of wgmma as one of its cases, and the error of
// every adder of the families M1 and M2 against the bounds M4 and M5.
#include "numeric/mma_dot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "numeric/e4m3.hpp"
#include "numeric/sm90_dot.hpp"
#include "plan/product_rounding.hpp"

namespace dosa::test {
namespace {

using Codes = std::vector<std::uint8_t>;

constexpr int kDim = 128;
constexpr std::uint8_t kOne = 0x38;
constexpr std::uint8_t kMinusOne = 0xb8;
constexpr std::uint8_t kNan = 0x7f;

float dot(const MmaAdder& adder, const Codes& a, const Codes& b) {
  return std::bit_cast<float>(mma_dot_bits(adder, a.data(), b.data(), static_cast<int>(a.size())));
}

/// The code of 2^exponent, -9 .. 8.
std::uint8_t power(int exponent) {
  return static_cast<std::uint8_t>(exponent >= -6 ? (exponent + 7) << 3 : 1 << (exponent + 9));
}

/// Kinds of vectors, from plain to nasty: full range, one binade, peaks over crumbs, growing steps,
/// pairs that cancel.
Codes draw(std::mt19937& random, int kind) {
  Codes codes(kDim);
  for (int d = 0; d < kDim; ++d) {
    auto code = static_cast<std::uint8_t>(random());
    if (kind == 1) code = static_cast<std::uint8_t>((random() & 0x87) | 0x38);
    if (kind == 2) code = static_cast<std::uint8_t>(random() % 40 == 0 ? 0x7e : random() & 0x8f);
    if (kind == 3) code = static_cast<std::uint8_t>((random() & 0x87) | (d / 8 << 3 & 0x78));
    if (kind == 4 && d % 2 == 1) {
      code = static_cast<std::uint8_t>(codes[static_cast<std::size_t>(d) - 1] ^ 0x80);
    }
    codes[static_cast<std::size_t>(d)] = e4m3_is_nan(code) ? kOne : code;
  }
  return codes;
}

struct Sizes {
  double norm_squared = 0;  // in units of 2^-18
  double top = 0x1p-6;
};

Sizes sizes(const Codes& codes) {
  Sizes result;
  for (const std::uint8_t code : codes) {
    const double units = e4m3_units(code);
    result.norm_squared += units * units;
    result.top = std::max(result.top, std::abs(units) * 0x1p-9);
  }
  return result;
}

double exact(const Codes& a, const Codes& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<std::int64_t>(e4m3_units(a[i])) * e4m3_units(b[i]);
  }
  return static_cast<double>(sum) * 0x1p-18;
}

/// The largest error over its bound, for one adder.
double most_of_bound(const MmaAdder& adder, const plan::ProductRounding& rounding) {
  std::mt19937 random(7);
  double most = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Codes a = draw(random, trial % 5);
    const Codes b = draw(random, trial / 5 % 4);
    const Sizes size_a = sizes(a);
    const Sizes size_b = sizes(b);
    const double norms = std::sqrt(size_a.norm_squared * size_b.norm_squared) * 0x1p-18;
    const double bound = static_cast<double>(rounding.per_norm) * norms +
                         static_cast<double>(rounding.per_product) * size_a.top * size_b.top;
    const double error = std::abs(static_cast<double>(dot(adder, a, b)) - exact(a, b));
    if (bound > 0) most = std::max(most, error / bound);
  }
  return most;
}

TEST(MmaDot, ThePublishedFp8AdderIsTheModelOfWgmma) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    Codes a = draw(random, trial % 5);
    const Codes b = draw(random, trial / 5 % 5);
    if (trial % 97 == 0) a[static_cast<std::size_t>(trial) % kDim] = kNan;
    ASSERT_EQ(mma_dot_bits(kMmaFp8Published, a.data(), b.data(), kDim),
              sm90_dot_bits(a.data(), b.data(), kDim));
  }
}

TEST(MmaDot, KeepsTwentyFiveBitsOfFp16Products) {
  // 2^8 - 2^8 and 2^j at a third place of the same sum of 16.
  for (int j = -17; j <= -14; ++j) {
    for (int place = 2; place < 16; ++place) {
      Codes a(kDim, 0);
      Codes b(kDim, kOne);
      a[0] = power(8);
      a[1] = static_cast<std::uint8_t>(power(8) | 0x80);
      a[static_cast<std::size_t>(place)] = power(j / 2 - 1);
      b[static_cast<std::size_t>(place)] = power(j - (j / 2 - 1));
      EXPECT_EQ(dot(kMmaF16Sm90, a, b), std::ldexp(1.0F, j)) << j << ' ' << place;
    }
  }
  Codes a(kDim, 0);
  Codes b(kDim, 0);
  a[0] = power(8);
  b[0] = power(1);
  a[1] = static_cast<std::uint8_t>(power(8) | 0x80);
  b[1] = power(1);
  a[2] = power(-9);
  b[2] = power(-8);  // 2^-17 beside 2^9: one bit too low
  EXPECT_EQ(dot(kMmaF16Sm90, a, b), 0.0F);
  b[2] = power(-7);
  EXPECT_EQ(dot(kMmaF16Sm90, a, b), 0x1p-16F);
}

TEST(MmaDot, IsExactOnSmallIntegersWhateverTheAdder) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 500; ++trial) {
    Codes a(kDim);
    Codes b(kDim);
    for (int d = 0; d < kDim; ++d) {
      a[static_cast<std::size_t>(d)] =
          static_cast<std::uint8_t>(power(static_cast<int>(random() % 3)) | (random() & 0x80));
      b[static_cast<std::size_t>(d)] =
          static_cast<std::uint8_t>(power(static_cast<int>(random() % 3)) | (random() & 0x80));
    }
    for (const MmaAdder& adder :
         {kMmaF16Sm90, kMmaFp8Published, MmaAdder{4, 23, 23, 16, true, true}}) {
      ASSERT_EQ(dot(adder, a, b), exact(a, b));
    }
  }
}

TEST(MmaDot, CountsEveryCoordinateOnce) {
  for (const MmaAdder& adder : {kMmaF16Sm90, kMmaFp8Published}) {
    std::vector<int> seen(kDim, 0);
    for (int i = 0; i < kDim; ++i) ++seen[static_cast<std::size_t>(mma_coordinate(adder, i))];
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kDim);
  }
  EXPECT_EQ(mma_coordinate(kMmaF16Sm90, 2), 4);
  EXPECT_EQ(mma_coordinate(kMmaF16Sm90, 8), 2);
  EXPECT_EQ(mma_coordinate(kMmaF16Sm90, 16 + 15), 16 + 15);
}

TEST(MmaDot, ANanCodeMakesANan) {
  Codes a(kDim, 0);
  const Codes b(kDim, kMinusOne);
  a[77] = kNan;
  EXPECT_TRUE(std::isnan(dot(kMmaF16Sm90, a, b)));
  EXPECT_TRUE(std::isnan(dot(kMmaFp8Published, b, a)));
}

TEST(MmaDot, NoAdderOfTheFp16FamilyExceedsItsBound) {
  for (const int group : {4, 8, 16}) {
    for (const int kept : {23, 24, 25}) {
      const double most = most_of_bound({group, kept, 23, 16, true, true}, plan::kRoundingMmaF16);
      EXPECT_LE(most, 1.0) << group << ' ' << kept;
      EXPECT_GT(most, 0.0) << group << ' ' << kept;
    }
  }
}

TEST(MmaDot, NoAdderOfTheFp8FamilyExceedsItsBound) {
  for (const int group : {8, 16, 32}) {
    for (const int kept : {12, 13, 14, 23}) {
      const double most =
          most_of_bound({group, kept, std::min(kept, 23), 32, false, false}, plan::kRoundingMmaFp8);
      EXPECT_LE(most, 1.0) << group << ' ' << kept;
      EXPECT_GT(most, 0.0) << group << ' ' << kept;
    }
  }
}

/// Every crumb is lost, in every sum: what the bounds have to cover.
TEST(MmaDot, CrumbsBesideAPeakAreLost) {
  Codes a(kDim, power(-9));
  Codes b(kDim, power(-9));
  a[0] = 0x7e;
  b[0] = 0x7e;
  const double fp16 =
      std::abs(static_cast<double>(dot({4, 23, 23, 16, true, true}, a, b)) - exact(a, b));
  const double fp8 = std::abs(static_cast<double>(dot(kMmaFp8Published, a, b)) - exact(a, b));
  EXPECT_EQ(fp16, 127 * 0x1p-18);
  EXPECT_EQ(fp8, 127 * 0x1p-18);
}

}  // namespace
}  // namespace dosa::test
