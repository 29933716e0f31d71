// SPDX-License-Identifier: Apache-2.0
//
// Decode steps on many threads: requests that are shared, requests for one thread each, states that
// two requests have in common. Run with the thread sanitizer by CI.
#include <gtest/gtest.h>

#include <thread>

#include "unit/decode/paged.hpp"

namespace dosa::oracle {
namespace {

std::vector<Problem> requests() {
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 2;
  recipe.num_heads = 4;
  recipe.sixteenths = 1;
  recipe.topk = 50;
  std::vector<Problem> list;
  for (const int keys : {20000, 40, 900, 900, 17000, 500}) {
    recipe.num_keys = keys;
    recipe.seed = list.size();
    list.push_back(make_problem(recipe));
  }
  return list;
}

TEST(DecodeThreads, ChangeNothing) {
  Step step(requests(), {});
  step.give_witnesses(4);
  const std::vector<std::int32_t> index = {0, 1, 2, 2, 0, -1};
  step.problem.witness_index = index.data();
  std::string expected;
  for (const int threads : {1, 2, 4, 7, 4}) {
    dosa_options options = make_options();
    options.threads = threads;
    const Outcome outcome = step.run(options);
    ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
    if (expected.empty()) expected = bytes_of(outcome);
    EXPECT_TRUE(bytes_of(outcome) == expected) << threads;
  }
}

TEST(DecodeThreads, TwoStepsAtOnce) {
  Step a(requests(), {});
  Step b(requests(), {16});
  b.give_witnesses(6);
  dosa_options options = make_options();
  options.threads = 2;
  const std::string expected = bytes_of(a.run(options));
  std::string other;
  std::thread thread([&] { other = bytes_of(b.run(options)); });
  EXPECT_TRUE(bytes_of(a.run(options)) == expected);
  thread.join();
  EXPECT_TRUE(other == expected);
}

}  // namespace
}  // namespace dosa::oracle
