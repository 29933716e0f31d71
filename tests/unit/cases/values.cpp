// SPDX-License-Identifier: Apache-2.0
//
// Distributions of scores on which public selectors lost winners: a fixed buffer overflowed, or a
// coarse key put too many scores into one bin. The numbers are those of the case collection.

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

TEST(Case01, NarrowScoresInLongRows) {
  for (const Distribution& narrow : narrow_scores_in_long_rows()) {
    expect_distribution(narrow, full_or(64, 8), full_or(10, 1));
  }
}

TEST(Case01, ThresholdPopulationsAroundABuffer) {
  expect_distributions(populations_around_a_buffer());
}

TEST(Case02, WinnersBesideOneCoarseBin) { expect_distributions(winners_beside_one_coarse_bin()); }

TEST(Case03, NarrowRangeAtTheBufferEdge) {
  expect_distributions(narrow_range_at_the_buffer_edge());
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
  expect_distributions(most_in_one_half_precision_bucket());
}

TEST(Case08, OneBandOfValuesAtAnyMagnitude) { expect_distributions(one_band_at_any_magnitude()); }

TEST(Case10, LastTenMantissaBits) { expect_distributions(last_mantissa_bits()); }

TEST(Case11, AnyDistribution) { expect_distributions(any_distribution()); }

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
