// SPDX-License-Identifier: Apache-2.0
//
// The order of scores as integers: monotone on every special value and on random bit patterns.
#include "numeric/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace dosa::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// No NaN: specials of both signs, then random bit patterns.
std::vector<float> numbers(int random_count) {
  std::vector<float> values;
  for (const float magnitude : {0.0F, std::numeric_limits<float>::denorm_min(), 0x1.fffffcp-127F,
                                0x1p-126F, 0x1.000002p-126F, 0x1.fffffep-1F, 1.0F, 0x1.000002p0F,
                                448.0F, 0x1p63F, std::numeric_limits<float>::max(), kInfinity}) {
    values.push_back(magnitude);
    values.push_back(-magnitude);
  }
  std::mt19937_64 random(1);
  while (random_count > 0) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    values.push_back(value);
    --random_count;
  }
  return values;
}

TEST(ScoreCode, OrdersLikeTheScores) {
  const std::vector<float> values = numbers(2000);
  for (const float a : values) {
    ASSERT_GT(score_code(a), 0U) << a;
    for (const float b : values) {
      ASSERT_EQ(score_code(a) < score_code(b), a < b) << a << " " << b;
      ASSERT_EQ(score_code(a) == score_code(b), a == b) << a << " " << b;
    }
  }
}

TEST(ScoreCode, NeighboursHaveNeighbouringCodes) {
  for (const float value : numbers(100000)) {
    if (value == kInfinity) continue;
    const float next = std::nextafter(value, kInfinity);
    // Between the least negative number and zero lies the code that -0 would have.
    const std::uint32_t step = value < 0.0F && next == 0.0F ? 2 : 1;
    ASSERT_EQ(score_code(next) - score_code(value), step) << std::hexfloat << value;
  }
}

TEST(ScoreCode, EveryNanIsLast) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 10000; ++trial) {
    const auto payload = static_cast<std::uint32_t>(random() | 1U) & 0x807fffffU;
    const auto nan = std::bit_cast<float>(payload | 0x7f800000U);
    ASSERT_TRUE(std::isnan(nan));
    ASSERT_EQ(score_code(nan), 0U);
  }
  EXPECT_LT(score_code(std::numeric_limits<float>::quiet_NaN()), score_code(-kInfinity));
}

TEST(ScoreCode, GivesTheScoreBack) {
  for (const float value : numbers(100000)) {
    const float back = code_score(score_code(value));
    ASSERT_EQ(bits_of(back), bits_of(value + 0.0F)) << std::hexfloat << value;  // -0 becomes +0
  }
  EXPECT_TRUE(std::isnan(code_score(0)));
}

TEST(Record, HigherScoreThenLowerId) {
  constexpr std::int32_t kLastId = std::numeric_limits<std::int32_t>::max();
  std::vector<float> values = numbers(20);
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  for (const float a : values) {
    const std::uint32_t code = score_code(a);
    for (const std::int32_t id : {0, 1, 255, 256, kLastId - 1, kLastId}) {
      const Record record = make_record(code, id);
      ASSERT_EQ(record_code(record), code);
      ASSERT_EQ(record_id(record), id);
      if (id < kLastId) {
        ASSERT_GT(record, make_record(code, id + 1));
      }
      for (const float b : values) {
        if (score_code(b) < code) {
          ASSERT_GT(record, make_record(score_code(b), kLastId - id));
        }
      }
    }
  }
}

}  // namespace
}  // namespace dosa::test
