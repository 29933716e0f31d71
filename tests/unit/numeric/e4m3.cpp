// SPDX-License-Identifier: Apache-2.0
//
// All 256 codes against definitions that share nothing with the decoder: counting up from zero, the
// formula of the format, and the format's own landmarks.
#include "numeric/e4m3.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace dosa::test {
namespace {

std::uint8_t code_of(int value) { return static_cast<std::uint8_t>(value); }

double value_of(int code) { return std::ldexp(kE4m3Units[code_of(code)], kE4m3UnitExponent); }

// The non-negative codes ascend: sixteen steps of 2^-9, then eight of each next power of two.
TEST(E4m3, CountsUpFromZero) {
  std::int32_t units = 0;
  for (int code = 0; code < 0x7f; ++code) {
    ASSERT_EQ(e4m3_units(code_of(code)), units) << code;
    ASSERT_EQ(e4m3_units(code_of(code | 0x80)), -units) << code;
    units += code < 16 ? 1 : 1 << (code / 8 - 1);
  }
  EXPECT_EQ(units, 480 * 512);  // where the NaN code stands: one step above 448
}

TEST(E4m3, FollowsTheFormula) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code / 8 % 16;
    const int mantissa = code % 8;
    if (exponent == 15 && mantissa == 7) continue;
    const double magnitude = exponent == 0 ? mantissa / 8.0 * std::exp2(-6)
                                           : (1 + mantissa / 8.0) * std::exp2(exponent - 7);
    ASSERT_EQ(value_of(code), code < 128 ? magnitude : -magnitude) << code;
  }
}

TEST(E4m3, HasTheLandmarksOfTheFormat) {
  EXPECT_EQ(value_of(0x01), 0x1p-9);
  EXPECT_EQ(value_of(0x07), 7 * 0x1p-9);
  EXPECT_EQ(value_of(0x08), 0x1p-6);
  EXPECT_EQ(value_of(0x38), 1.0);
  EXPECT_EQ(value_of(0xb8), -1.0);
  EXPECT_EQ(value_of(0x7e), 448.0);
  EXPECT_EQ(value_of(0xfe), -448.0);
  EXPECT_EQ(kE4m3Units[0x7e], kE4m3MaxUnits);
}

TEST(E4m3, TwoCodesAreNoNumberAndCountAsZero) {
  int count = 0;
  for (int code = 0; code < 256; ++code) {
    if (!e4m3_is_nan(code_of(code))) continue;
    ++count;
    EXPECT_TRUE(code == 0x7f || code == 0xff) << code;
    EXPECT_EQ(e4m3_units(code_of(code)), 0) << code;
  }
  EXPECT_EQ(count, 2);
}

// N3: a coordinate that leaves a low part is small. Four significant bits, so a value of at least
// 2^(s+3) units is a multiple of 2^s.
TEST(E4m3, HasFourSignificantBits) {
  for (int code = 0; code < 128; ++code) {
    const std::int32_t units = e4m3_units(code_of(code));
    for (int shift = 0; shift <= 14; ++shift) {
      if (units < 1 << (shift + 3)) continue;
      ASSERT_EQ(units % (1 << shift), 0) << code << ", shift " << shift;
    }
  }
}

}  // namespace
}  // namespace dosa::test
