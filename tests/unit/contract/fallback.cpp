// SPDX-License-Identifier: Apache-2.0
//
// What cannot be screened is scored, row by row and key by key: for one row, a group of them and
// all rows the answers stay exact, and the counters tell.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "engine/row_group.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"
#include "plan/envelope.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

constexpr std::int64_t kRows = 20;
constexpr std::int64_t kKeys = 4300;

Problem trained() {
  Recipe recipe;
  recipe.kind = Kind::kTrained;
  recipe.weights = Weights::kMostlyNegative;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = kRows;
  recipe.num_heads = 8;
  recipe.sixteenths = 8;
  recipe.num_keys = kKeys;
  recipe.topk = 64;
  return make_problem(recipe);
}

/// Ways to make a row that no bound covers.
struct Decline {
  std::string name;
  void (*spoil)(Problem& problem, std::int64_t row);
};

const Decline kDeclines[] = {
    {"NaN weight",
     [](Problem& p, std::int64_t row) {
       p.weights[static_cast<std::size_t>(row * p.num_heads + 1)] =
           std::numeric_limits<float>::quiet_NaN();
     }},
    {"infinite weight",
     [](Problem& p, std::int64_t row) {
       p.weights[static_cast<std::size_t>(row * p.num_heads + 2)] =
           -std::numeric_limits<float>::infinity();
     }},
    {"NaN code",
     [](Problem& p, std::int64_t row) {
       p.q[static_cast<std::size_t>(row * p.num_heads * p.head_dim + 5)] = 0x7f;
     }},
    {"strength beyond the limit",
     [](Problem& p, std::int64_t row) {
       for (int h = 0; h < p.num_heads; ++h) {
         p.weights[static_cast<std::size_t>(row * p.num_heads + h)] *=
             static_cast<float>(plan::kRowStrengthLimit);
       }
     }},
};

TEST(Fallback, OfOneRowOfAGroupAndOfAll) {
  for (const Decline& decline : kDeclines) {
    for (const std::int64_t declined : {std::int64_t{1}, std::int64_t{16}, kRows}) {
      Problem problem = trained();
      const std::int64_t first = declined == 1 ? kRows / 2 : 0;  // the middle row is the pilot
      for (std::int64_t row = first; row < first + declined; ++row) decline.spoil(problem, row);
      const std::vector<Row> expected = top_k(problem, {});
      for (const int mode : {DOSA_MODE_FULL, DOSA_MODE_SCREEN, DOSA_MODE_DOSA}) {
        dosa_options options = make_options();
        options.mode = mode;
        options.threads = 2;
        const Outcome outcome = run(problem, {}, options);
        ASSERT_EQ(difference(problem, expected, outcome), "") << decline.name << declined;
        EXPECT_EQ(outcome.stats.fallback_rows, declined) << decline.name << " mode " << mode;
        for (std::int64_t row = 0; row < kRows; ++row) {
          const dosa_row_stats& stats = outcome.rows[static_cast<std::size_t>(row)];
          const bool fell = row >= first && row < first + declined;
          EXPECT_EQ(stats.fallback, fell ? 1 : 0) << decline.name << " row " << row;
          if (fell) {
            EXPECT_EQ(stats.fully_scored, kKeys) << decline.name << " row " << row;
            EXPECT_EQ(stats.screened, 0);
          }
        }
        const bool screens = mode != DOSA_MODE_FULL;
        EXPECT_EQ(outcome.stats.screened_rows, screens ? kRows - declined : 0) << decline.name;
      }
    }
  }
}

// Keys that no bound covers survive screening: one, a tile, all of them.
TEST(Fallback, OfOneKeyOfATileAndOfAll) {
  const float scales[] = {0.0F, -1.0F, 1e-42F, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()};
  std::int64_t without = -1;
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{plan::kTileKeys}, kKeys}) {
    Problem problem = trained();
    for (std::int64_t i = 0; i < count; ++i) {
      problem.k_scale[static_cast<std::size_t>((i + 3000) % kKeys)] = scales[i % 5];
    }
    const std::vector<Row> expected = top_k(problem, {});
    dosa_options options = make_options();
    options.mode = DOSA_MODE_DOSA;
    options.heads = 4;
    const Outcome outcome = run(problem, {}, options);
    ASSERT_EQ(difference(problem, expected, outcome), "") << count;
    EXPECT_EQ(outcome.stats.fallback_rows, 0) << "only rows are counted there";
    if (count == 0) without = outcome.stats.fully_scored;
    // Unless they were in the sample or among the seeds, each of them costs each row a score.
    EXPECT_GE(outcome.stats.fully_scored, kRows * count) << count;
    EXPECT_LT(without, kRows * kKeys);
  }
}

// A key's scale of +Inf: 0 * Inf is NaN, and hardly a key has no lane of heads that adds up to
// zero.
TEST(Fallback, AnInfiniteScaleMakesNanOrInfinity) {
  Problem problem = dial(std::vector<float>(200, 1.0F), 1, 100, 1.0F, 16, 16);
  problem.k_scale[7] = std::numeric_limits<float>::infinity();
  std::vector<Row> expected = top_k(problem, {});
  for (const int mode : {0, 1, 2, 3, 4}) {
    dosa_options options = make_options();
    options.mode = mode;
    const Outcome outcome = run(problem, {}, options);
    EXPECT_EQ(difference(problem, expected, outcome), "");
    // One head of 16 fires: seven lanes are zero, so the score is NaN and ranks last.
    EXPECT_EQ(std::count(outcome.ids.begin(), outcome.ids.end(), 7), 0);
  }
  for (std::size_t h = 0; h < 16; ++h) {  // all lanes positive
    problem.q[h * 16] = encode_e4m3(1);
    problem.weights[h] = 1.0F;
  }
  expected = top_k(problem, {});
  const Outcome outcome = run(problem, {}, make_options());
  EXPECT_EQ(difference(problem, expected, outcome), "");
  EXPECT_EQ(outcome.scores[7], std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace dosa::oracle
