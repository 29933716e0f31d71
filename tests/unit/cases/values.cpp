// SPDX-License-Identifier: Apache-2.0
//
// Distributions of scores on which public selectors lost winners: a fixed buffer overflowed, or a
// coarse key put too many scores into one bin. The numbers are those of the case collection.
#include <bit>
#include <cmath>
#include <numeric>

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

std::vector<float> filled(std::int64_t n, const std::function<float(std::int64_t)>& value) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(value(i));
  return values;
}

TEST(Case01, NarrowScoresInLongRows) {
  for (const std::int64_t n : {262143, 262144, 262145}) {
    Random random(7);
    const auto values =
        filled(n, [&](std::int64_t) { return 1.0F + 0.2F * static_cast<float>(random.uniform()); });
    expect_dial(values, full_or(64, 8), 2048, static_cast<int>(full_or(10, 1)));
  }
}

TEST(Case01, ThresholdPopulationsAroundABuffer) {
  for (const std::int64_t population : {4095, 4096, 4097, 8191, 8193, 16384}) {
    Random random(7);
    auto values = filled(262144, [&](std::int64_t i) {
      if (i < population) return 1.0F + 1e-6F * static_cast<float>(random.below(100));
      return random.once_in(200) ? 2.0F : 0.5F;
    });
    random.shuffle(values);
    expect_dial(values, 3, 2048);
  }
}

TEST(Case02, WinnersBesideOneCoarseBin) {
  for (const std::int64_t above : {0, 999, 1000, 2047, 2048, 2049}) {
    Random random(11);
    auto values = filled(8192, [&](std::int64_t i) {
      if (i < above) return 2.0F + static_cast<float>(i) * 1e-3F;
      if (i < above + 5000) return 1.0F + static_cast<float>(i - above) * 6e-7F;
      return 0.5F;
    });
    random.shuffle(values);
    expect_dial(values, 8, 2048);
  }
}

TEST(Case03, NarrowRangeAtTheBufferEdge) {
  for (const std::int64_t n : {16383, 16384, 16385, 16386, 16512}) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    Random random(3);
    random.shuffle(order);
    const auto values = filled(n, [&](std::int64_t i) {
      return 1.0F + 0.245F * static_cast<float>(order[static_cast<std::size_t>(i)]) /
                        static_cast<float>(n);
    });
    for (const int k : {512, 1024, 2048}) {
      for (const std::int64_t rows : {32, 33}) expect_dial(values, rows, k);
    }
  }
}

TEST(Case05, SixtyFourValuesWithThousandsOfTies) {
  const auto values =
      filled(65536, [](std::int64_t i) { return static_cast<float>(i % 64) / 64.0F; });
  for (const auto& [k, least] : std::vector<std::pair<int, float>>{
           {1024, 0.984375F}, {2048, 0.96875F}, {2049, 0.953125F}, {2051, 0.953125F}}) {
    expect_dial(values, 2, k);
    const Problem problem = dial(values, 1, k, 1.0F, 1, 16);
    const Outcome outcome = run(problem, {}, make_options());
    EXPECT_EQ(*std::min_element(outcome.scores.begin(), outcome.scores.end()), least);
    if (k == 2048) {
      for (const auto id : outcome.ids) EXPECT_GE(id % 64, 62);
    }
  }
}

TEST(Case07, MostOfTheRowInOneHalfPrecisionBucket) {
  for (const std::int64_t n : {199999, 200000, 200001}) {
    Random random(5);
    const auto values = filled(n, [&](std::int64_t) {
      return static_cast<float>(random.below(10) < 6 ? std::exp(0.002 * random.normal())
                                                     : std::exp(random.normal() - 1.0));
    });
    expect_dial(values, 4, 2048);
  }
}

TEST(Case08, OneBandOfValuesAtAnyMagnitude) {
  for (const float magnitude : {10.0F, 1e-6F, 1e6F, 1e-30F, 1e30F}) {
    Random random(1);
    const auto values = filled(32768, [&](std::int64_t) {
      return magnitude * (1.0F + 0.02F * static_cast<float>(random.uniform()));
    });
    expect_dial(values, 2, 2048);
    expect_dial(values, 2, 2048, 1, -1.0F);
  }
}

TEST(Case10, LastTenMantissaBits) {
  for (const int bits : {9, 10, 11}) {
    Random random(42);
    const auto values = filled(32768, [&](std::int64_t) {
      return std::bit_cast<float>(0x3F900000U |
                                  static_cast<std::uint32_t>(random.below(1 << bits)));
    });
    expect_dial(values, 8, 2048);
    expect_dial(values, 2, 2047);
  }
}

TEST(Case11, AnyDistribution) {
  const std::vector<std::function<float(std::int64_t)>> rows = {
      [](std::int64_t) { return 1e-38F; },
      [](std::int64_t) { return 3e38F; },
      [](std::int64_t i) { return i % 2 == 0 ? 1e-30F : 1e30F; },
      [](std::int64_t i) { return i == 4321 ? 3e38F : 1.0F; },
      [](std::int64_t i) { return static_cast<float>(i) * 1.4e-45F; },
      [](std::int64_t i) { return i < 2048 ? static_cast<float>(i + 1) : 0.0F; },
      [](std::int64_t i) { return i == 0 ? 0.0F : -0.0F; },
  };
  for (const auto& row : rows) {
    for (const std::int64_t n : {4999, 5000, 5001}) {
      expect_dial(filled(n, row), 2, 2048);
      expect_dial(filled(n, row), 2, 2048, 1, -1.0F);
    }
  }
}

TEST(Case09, ThousandsOfRandomRows) {
  const auto seeds = static_cast<std::uint64_t>(full_or(300, 12));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Recipe recipe;
    recipe.kind = seed % 4 == 3 ? Kind::kReal : Kind::kInt;
    recipe.weights = Weights::kSigned;
    recipe.scales = Scales::kPositive;
    recipe.num_queries = 8;
    recipe.num_heads = 32;
    recipe.num_keys = 7000;
    recipe.topk = 2048;
    recipe.seed = seed;
    ASSERT_NO_FATAL_FAILURE(expect_oracle(make_problem(recipe))) << recipe;
  }
}

}  // namespace
}  // namespace dosa::oracle
