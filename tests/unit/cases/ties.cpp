// SPDX-License-Identifier: Apache-2.0
//
// Ties at the cut: one answer, always the lowest ids, in the documented order, on every run.

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

TEST(Case13, EightValuesTwentyFiveRuns) {
  for (const std::int64_t n : {131071, 131072, 131073}) {
    Random random(2);
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(random.below(8)) / 8);
    expect_dial(values, full_or(16, 4), 2048, n == 131072 ? 5 : 1);  // times five modes
  }
}

TEST(Case17, FourCopiesOfEachScore) { expect_distributions(copies_of_each_score()); }

TEST(Case17, TheCutGroupGivesItsLowestIds) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 8204; ++i) values.push_back(static_cast<float>(i / 4));
  const Problem problem = dial(values, 1, 2051, 1.0F, 1, 16);
  const Ids ids = ids_of(run(problem, {}, make_options()), 0, 2051);
  // Groups 1539 to 2050 are whole; of group 1538, keys 6152 to 6155, the lowest three are taken.
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 4), (Ids{6152, 6153, 6154, 6156}));
  EXPECT_EQ(ids.back(), 8203);
}

TEST(Case18, ScoresRoundedToBfloat16) {
  for (const Distribution& rounded : scores_rounded_to_bfloat16()) {
    expect_distribution(rounded, full_or(64, 8), full_or(20, 2));
  }
}

TEST(Case19, LengthsAroundTheBudget) {
  for (const int first : {2040, 4090}) {
    for (int n = first; n <= first + 20; ++n) {
      Recipe recipe;
      recipe.kind = Kind::kInt;
      recipe.weights = Weights::kSigned;
      recipe.scales = Scales::kPositive;
      recipe.num_queries = 2;
      recipe.num_heads = 4;
      recipe.num_keys = n;
      recipe.topk = 2048;
      recipe.seed = 54521;
      const Problem problem = make_problem(recipe);
      expect_oracle(problem, static_cast<int>(full_or(20, 1)));
      if (n > 2048) continue;
      const Outcome outcome = run(problem, {}, make_options());
      for (std::int32_t i = 0; i < 2048; ++i) {
        ASSERT_EQ(outcome.ids[static_cast<std::size_t>(i)], i < n ? i : -1);
      }
    }
  }
}

TEST(Case21, TheDocumentedOrderHolds) {
  Random random(2);
  std::vector<float> values;
  for (std::int64_t i = 0; i < 20000; ++i)
    values.push_back(static_cast<float>(random.below(8)) / 8);
  const Problem problem = dial(values, 4, 2048, 1.0F, 1, 16);
  for (const Order order : {Order::kById, Order::kByScore}) {
    Request request;
    request.order = order;
    const std::vector<Row> expected(4, select(problem, request, 0, values));
    expect_rows(problem, expected, 2, request);
  }
}

TEST(Case22, NothingBehindTheEndCompetes) {
  for (const std::int32_t end : {2048, 2049, 2500, 4095, 4096}) {
    Problem problem = dial(std::vector<float>(4096, 0.0F), 2, 2048, 1.0F, 1, 16);
    for (std::int64_t i = end; i < 4096; ++i) {
      problem.k_scale[static_cast<std::size_t>(i)] = 1e9F;
    }
    problem.end = {end, end};
    Ids expected(2048);
    for (std::int32_t i = 0; i < 2048; ++i) expected[static_cast<std::size_t>(i)] = i;
    for (const int mode : all_modes()) {
      dosa_options options = make_options();
      options.mode = mode;
      EXPECT_EQ(ids_of(run(problem, {}, options), 1, 2048), expected) << mode << " " << end;
    }
  }
}

// The same rows with and without scores, in either order of output, give the same set.
TEST(Case24, EveryEntryGivesTheSameSet) {
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kSigned;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = 3;
  recipe.num_heads = 8;
  recipe.num_keys = 6000;
  recipe.topk = 500;
  const Problem problem = make_problem(recipe);
  for (const Order order : {Order::kById, Order::kByScore}) {
    Request request;
    request.order = order;
    expect_oracle(problem, 1, request);
  }
}

}  // namespace
}  // namespace dosa::oracle
