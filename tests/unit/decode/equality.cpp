// SPDX-License-Identifier: Apache-2.0
//
// A decode step returns the bytes that dosa_topk returns on the gathered keys: prefill and decode
// are one score model. On a trained indexer's input, with many keys, threads and states.
#include <gtest/gtest.h>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

Problem request(int next_n, int keys, int heads, int topk, std::uint64_t seed) {
  Recipe recipe;
  recipe.kind = Kind::kTrained;
  recipe.weights = Weights::kMostlyNegative;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = next_n;
  recipe.num_heads = heads;
  recipe.sixteenths = 8;
  recipe.num_keys = keys;
  recipe.topk = topk;
  recipe.seed = seed;
  Problem problem = make_problem(recipe);
  problem.start.clear();
  problem.end.clear();
  for (int t = 0; t < next_n; ++t) problem.end.push_back(keys - next_n + 1 + t);
  return problem;
}

/// What dosa_topk returns for all requests, one after another.
std::string prefill_bytes(const std::vector<Problem>& requests, const dosa_options& options) {
  Outcome all;
  for (const Problem& problem : requests) {
    const Outcome one = run(problem, {}, options);
    EXPECT_EQ(one.status, DOSA_OK) << one.error;
    all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
    all.scores.insert(all.scores.end(), one.scores.begin(), one.scores.end());
  }
  return bytes_of(all);
}

TEST(PrefillAndDecode, SameBytes) {
  struct Shape {
    int heads, next_n, topk;
    std::vector<int> keys;
    int page_size;
  };
  const std::vector<Shape> shapes = {
      {32, 1, 2048, {30000}, 64},           {32, 2, 2048, {20000, 100, 3000, 2049}, 64},
      {64, 1, 512, {9000, 8000, 7000}, 32}, {8, 8, 100, {12000, 500, 600}, 1},
      {20, 3, 8192, {8193, 20000}, 128},
  };
  for (const Shape& shape : shapes) {
    std::vector<Problem> requests;
    for (const int keys : shape.keys) {
      requests.push_back(request(shape.next_n, keys, shape.heads, shape.topk, requests.size()));
    }
    const std::string expected = prefill_bytes(requests, make_options());
    Step step(requests, {shape.page_size, 128});
    for (const bool remembering : {false, true, true}) {
      if (remembering && step.witnesses.empty()) step.give_witnesses(step.problem.batch);
      for (const int threads : {1, 2, 7}) {
        for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_BASE, DOSA_MODE_FULL}) {
          dosa_options options = make_options();
          options.threads = threads;
          options.mode = mode;
          const Outcome outcome = step.run(options);
          ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
          EXPECT_EQ(outcome.damage, "");
          ASSERT_TRUE(bytes_of(outcome) == expected)
              << "H " << shape.heads << " K " << shape.topk << " " << describe(options);
        }
      }
    }
  }
}

// Requests in another order, one by one, and pages elsewhere: each answer is its own.
TEST(PrefillAndDecode, BatchOrderAndPlacesDoNotMatter) {
  std::vector<Problem> requests;
  for (const int keys : {5000, 300, 14000, 1, 2600}) {
    requests.push_back(request(2, keys, 16, 256, requests.size()));
  }
  Step together(requests, {});
  const Outcome first = together.run(make_options());
  together.pages.move(5);
  EXPECT_TRUE(bytes_of(together.run(make_options())) == bytes_of(first));
  const auto width = static_cast<std::ptrdiff_t>(2 * 256);
  for (std::size_t b = 0; b < requests.size(); ++b) {
    Step alone({requests[b]}, {16, 4, 0, 0, b});
    const auto from = first.ids.begin() + static_cast<std::ptrdiff_t>(b) * width;
    EXPECT_EQ(alone.run(make_options()).ids, std::vector<std::int32_t>(from, from + width)) << b;
  }
  std::vector<Problem> backwards(requests.rbegin(), requests.rend());
  const Outcome last = Step(backwards, {32}).run(make_options());
  for (std::size_t b = 0; b < requests.size(); ++b) {
    const auto a = first.ids.begin() + static_cast<std::ptrdiff_t>(b) * width;
    const auto z = last.ids.end() - static_cast<std::ptrdiff_t>(b + 1) * width;
    EXPECT_TRUE(std::equal(a, a + width, z)) << b;
  }
}

TEST(PrefillAndDecode, WithoutScoresAndStatisticsTheIdsAreTheSame) {
  Step step({request(1, 9000, 32, 300, 3)}, {});
  const Outcome with = step.run(make_options(), true);
  EXPECT_EQ(step.run(make_options(), false).ids, with.ids);
  EXPECT_EQ(with.stats.rows, 1);
  EXPECT_EQ(with.stats.visible, 9000);
  EXPECT_EQ(with.stats.fully_scored, 9000);
  EXPECT_EQ(with.stats.short_rows, 0);
  EXPECT_GE(with.stats.records, 300);
  EXPECT_EQ(with.rows[0].visible, 9000);
  EXPECT_EQ(with.rows[0].kth_score, *std::min_element(with.scores.begin(), with.scores.end()));
  EXPECT_GT(with.stats.seconds, 0.0);
}

TEST(PrefillAndDecode, CountsAreRepeatable) {
  Step step({request(3, 30000, 8, 300, 3), request(3, 700, 8, 300, 4)}, {});
  for (const int threads : {1, 3}) {
    dosa_options options = make_options();
    options.threads = threads;
    const Outcome first = step.run(options);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const Outcome again = step.run(options);
      EXPECT_EQ(again.stats.records, first.stats.records);
      EXPECT_EQ(again.stats.rounds, first.stats.rounds);
      EXPECT_EQ(again.stats.fully_scored, first.stats.fully_scored);
      EXPECT_EQ(again.rows[2].records, first.rows[2].records);
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
