// SPDX-License-Identifier: Apache-2.0
//
// What a state remembers changes the work and never the answer: sequences that grow, are taken back
// and move, and states that are stale, garbled, shared or somebody else's.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

constexpr int kTopk = 64;

Problem sequence(int next_n, int keys, std::uint64_t seed = 0) {
  Recipe recipe;
  recipe.kind = Kind::kTrained;
  recipe.weights = Weights::kMostlyNegative;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = next_n;
  recipe.num_heads = 16;
  recipe.sixteenths = 4;
  recipe.num_keys = keys;
  recipe.topk = kTopk;
  recipe.seed = seed;
  Problem problem = make_problem(recipe);
  problem.start.clear();
  problem.end.assign(static_cast<std::size_t>(next_n), keys);
  return problem;
}

/// The answer without witnesses; `answers` holds nothing of theirs.
std::string plain(Step& step, const dosa_options& options) {
  void* const kept = step.problem.witnesses;
  step.problem.witnesses = nullptr;
  const Outcome outcome = step.run(options);
  step.problem.witnesses = kept;
  EXPECT_EQ(outcome.status, DOSA_OK) << outcome.error;
  return bytes_of(outcome);
}

std::size_t words_of_state(const Step& step) {
  return static_cast<std::size_t>(step.problem.witness_stride) / 4;
}

std::set<std::uint32_t> remembered(const Step& step, std::size_t state) {
  const auto* words = step.witnesses.data() + state * words_of_state(step);
  return {words + 1, words + 1 + words[0]};
}

TEST(Witnesses, AStateHoldsTheWinnersAndRunnersUp) {
  Step step({sequence(2, 5000)}, {});
  step.give_witnesses(1);
  const Outcome outcome = step.run(make_options());
  const std::set<std::uint32_t> ids = remembered(step, 0);
  EXPECT_EQ(ids.size(), step.witnesses[0]);  // distinct
  EXPECT_LE(1 + ids.size(), words_of_state(step));
  EXPECT_GT(ids.size(), static_cast<std::size_t>(kTopk));
  for (int n = 0; n < kTopk; ++n) {  // those of the last query
    EXPECT_EQ(ids.count(static_cast<std::uint32_t>(outcome.ids[kTopk + n])), 1U);
  }
  EXPECT_LT(*ids.rbegin(), 5000U);
}

// The second step starts with a threshold that only the whole scan gave the first.
TEST(Witnesses, TheyRaiseTheFirstThreshold) {
  Step step({sequence(1, 6000)}, {});
  step.give_witnesses(1);
  const Outcome cold = step.run(make_options());
  EXPECT_TRUE(std::isinf(cold.rows[0].first_threshold));
  const Outcome warm = step.run(make_options());
  EXPECT_EQ(warm.rows[0].first_threshold, warm.rows[0].kth_score);
  EXPECT_LT(warm.rows[0].records, cold.rows[0].records);
  EXPECT_TRUE(bytes_of(warm) == bytes_of(cold));
}

TEST(Witnesses, ASequenceGrowsIsTakenBackAndMoves) {
  for (const int next_n : {1, 4}) {
    Problem whole = sequence(next_n, 3000, 5);
    Step step({whole}, {});
    step.give_witnesses(4);
    const std::vector<std::int32_t> course = {0,    1,    63,   64,   65,   1000, 1001, 1002,
                                              1005, 1001, 2999, 3000, 1200, 500,  64,   10,
                                              2000, 0,    2000, 2001, 2002, 1998, 1999};
    Random random(3);
    std::vector<std::int32_t> index = {0};
    step.problem.witness_index = index.data();
    for (std::size_t n = 0; n < course.size(); ++n) {
      for (int t = 0; t < next_n; ++t) {
        step.lengths[static_cast<std::size_t>(t)] =
            course[n] - static_cast<std::int32_t>(random.below(3));
      }
      if (n % 5 == 4) {  // the request moves to another slot, its state with it or not
        const auto to = static_cast<std::int32_t>(random.below(4));
        if (random.once_in(2)) {
          std::copy_n(
              step.witnesses.begin() + static_cast<std::ptrdiff_t>(words_of_state(step)) * index[0],
              words_of_state(step),
              step.witnesses.begin() + static_cast<std::ptrdiff_t>(words_of_state(step)) * to);
        }
        index[0] = to;
        step.pages.move(n);
      }
      dosa_options options = make_options();
      options.threads = 1 + static_cast<int>(n % 3);
      const std::string expected = plain(step, options);
      const Outcome outcome = step.run(options);
      ASSERT_TRUE(bytes_of(outcome) == expected) << "step " << n << " length " << course[n];
    }
  }
}

TEST(Witnesses, AnyContentsGiveTheSameAnswer) {
  Step step({sequence(2, 17000), sequence(2, 400, 1), sequence(2, 30, 2)}, {});
  step.lengths = {16999, 17000, 250, -1, 30, 30};
  step.give_witnesses(3);
  const std::string expected = plain(step, make_options());
  Random random(11);
  using Fill = std::function<std::uint32_t(std::size_t)>;
  const std::vector<std::pair<const char*, Fill>> fills = {
      {"zero", [](std::size_t) { return 0U; }},
      {"all bits", [](std::size_t) { return 0xffffffffU; }},
      {"one id", [](std::size_t) { return 77U; }},
      {"random bits", [&](std::size_t) { return static_cast<std::uint32_t>(random.next()); }},
      {"random ids", [&](std::size_t) { return static_cast<std::uint32_t>(random.below(17000)); }},
      {"descending", [](std::size_t n) { return static_cast<std::uint32_t>(17100 - n); }},
      {"out of range", [](std::size_t n) { return static_cast<std::uint32_t>(16990 + n); }},
      {"negative",
       [](std::size_t n) { return static_cast<std::uint32_t>(-5 - static_cast<int>(n)); }},
      {"all but the best",
       [&](std::size_t n) { return n == 0 ? 0xffffU : static_cast<std::uint32_t>(n - 1); }}};
  for (const auto& [what, fill] : fills) {
    for (const int threads : {1, 3}) {
      for (std::size_t n = 0; n < step.witnesses.size(); ++n) {
        step.witnesses[n] = fill(n % words_of_state(step));
      }
      dosa_options options = make_options();
      options.threads = threads;
      const Outcome outcome = step.run(options);
      EXPECT_TRUE(bytes_of(outcome) == expected) << what << " on " << threads;
      EXPECT_TRUE(bytes_of(step.run(options)) == expected) << "after " << what;
    }
  }
}

TEST(Witnesses, StatesOfOthersAndNone) {
  Step step({sequence(1, 17000), sequence(1, 8000, 1), sequence(1, 18000, 2)}, {});
  step.give_witnesses(2);
  const std::string expected = plain(step, make_options());
  const std::vector<std::vector<std::int32_t>> indices = {
      {0, 1, 0}, {1, 0, 1}, {1, 1, 1}, {-1, 2, 0}, {7, -2147483647, 2147483647}};
  for (const auto& index : indices) {
    for (const int threads : {1, 3}) {
      step.problem.witness_index = index.data();
      dosa_options options = make_options();
      options.threads = threads;
      EXPECT_TRUE(bytes_of(step.run(options)) == expected);
    }
  }
}

// Entries of the state from an id list: as after a prefill, in any order, with -1 behind the last.
TEST(Witnesses, AStateCanBeSet) {
  Step step({sequence(1, 6000)}, {});
  step.give_witnesses(1);
  const std::string expected = plain(step, make_options());
  Outcome outcome = step.run(make_options());
  std::vector<std::int32_t> ids(outcome.ids.rbegin(), outcome.ids.rend());
  ids.push_back(-1);
  std::fill(step.witnesses.begin(), step.witnesses.end(), 0xffffffffU);
  ASSERT_EQ(dosa_witness_set(step.witnesses.data(), kTopk, ids.data(),
                             static_cast<std::int64_t>(ids.size())),
            DOSA_OK);
  EXPECT_EQ(step.witnesses[0], static_cast<std::uint32_t>(kTopk));
  outcome = step.run(make_options());
  EXPECT_EQ(outcome.rows[0].first_threshold, outcome.rows[0].kth_score);
  EXPECT_TRUE(bytes_of(outcome) == expected);
  const std::vector<std::int32_t> many(1000, 5);
  std::vector<std::uint32_t> guarded(words_of_state(step) + 1, 0xabcdef);
  ASSERT_EQ(dosa_witness_set(guarded.data(), kTopk, many.data(), 1000), DOSA_OK);
  EXPECT_EQ(guarded.back(), 0xabcdefU);
  ASSERT_EQ(dosa_witness_set(guarded.data(), kTopk, nullptr, 0), DOSA_OK);
  EXPECT_EQ(guarded[0], 0U);
}

// A tie at the threshold that the witnesses prove: the lower id, which is none of them, still wins.
TEST(Witnesses, TiesWithTheThresholdSurvive) {
  std::vector<float> values(17000, 1.0F);
  for (std::size_t i = 0; i < 30; ++i) values[8000 + i] = 2.0F;
  Step step({dial(values, 1, 100)}, {});
  step.give_witnesses(1);
  std::vector<std::int32_t> late;
  for (int i = 0; i < 100; ++i) late.push_back(8900 + i);
  for (const int threads : {1, 2}) {
    ASSERT_EQ(dosa_witness_set(step.witnesses.data(), 100, late.data(), 100), DOSA_OK);
    dosa_options options = make_options();
    options.threads = threads;
    const Outcome outcome = step.run(options);
    std::vector<std::int32_t> expected;
    for (int i = 0; i < 70; ++i) expected.push_back(i);
    for (int i = 0; i < 30; ++i) expected.push_back(8000 + i);
    EXPECT_EQ(outcome.ids, expected);
    EXPECT_EQ(outcome.rows[0].first_threshold, 1.0F);
  }
}

}  // namespace
}  // namespace dosa::oracle
