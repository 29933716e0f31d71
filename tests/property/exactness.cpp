// SPDX-License-Identifier: Apache-2.0
//
// The answer of every mode and option is the oracle's, bit for bit, on random problems of every
// shape, kind of number and window.
#include <gtest/gtest.h>

#include "oracle/trial.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

std::string wrong(const Trial& trial) {
  const Problem problem = make_problem(trial.recipe);
  const Request request = request_of(trial, problem);
  const Outcome outcome = run(problem, request, options_of(trial, request), layout_of(trial));
  return difference(problem, top_k(problem, request), outcome);
}

void expect_exact(int cases, const rc::Gen<Trial>& generator) {
  check_cases(cases, [&generator] {
    const Trial trial = *generator;
    const std::string text = wrong(trial);
    if (!text.empty()) RC_FAIL(text);
  });
}

TEST(Exactness, AnyShapeAnyOption) { expect_exact(900, trials({})); }

TEST(Exactness, TinyShapes) { expect_exact(2500, trials({3, 20, 3, 40, 45})); }

/// Enough keys that no engine takes the short way of scoring them all.
rc::Gen<Trial> longer(const Limits& limits) {
  constexpr int kMoreKeys = 4200;
  return rc::gen::map(trials(limits), [](Trial t) {
    t.recipe.num_keys += kMoreKeys;
    return t;
  });
}

TEST(Exactness, LongRowsFewHeads) { expect_exact(500, longer({3, 16, 4, 3000, 300})); }

TEST(Exactness, LongRowsManyHeads) { expect_exact(100, longer({3, 100, 8, 6000, 64})); }

// Enough rows for groups with a pilot whose winners seed its neighbours.
TEST(Exactness, ManyRows) {
  expect_exact(120, rc::gen::map(longer({0, 10, 2, 1000, 120}), [](Trial t) {
                 t.recipe.num_queries = 20 + static_cast<int>(t.recipe.seed % 120);
                 return t;
               }));
}

// One problem under many options: all answers equal, whatever the way to them.
TEST(Exactness, EveryVariantOfOneProblem) {
  check_cases(40, [] {
    const Recipe recipe = (*longer({3, 64, 8, 4000, 100})).recipe;
    const Problem problem = make_problem(recipe);
    const auto expected = top_k(problem, {});
    const auto many = *rc::gen::container<std::vector<Variant>>(12, variants());
    for (Variant variant : many) {
      variant.form = variant.order = variant.forced_first = variant.forced_last = 0;
      const Trial trial{recipe, variant};
      const std::string text =
          difference(problem, expected, run(problem, {}, options_of(trial, {}), layout_of(trial)));
      if (!text.empty()) {
        std::ostringstream message;
        message << trial << ": " << text;
        RC_FAIL(message.str());
      }
    }
  });
}

// dosa_scores gives the model's score of every visible key, and -Inf outside the window.
TEST(Exactness, ScoresOfEveryKey) {
  check_cases(300, [] {
    const Recipe recipe = *recipes({4, 128, 16, 500, 20});
    const Problem problem = make_problem(recipe);
    const Outcome outcome = run_scores(problem, make_options());
    RC_ASSERT(outcome.error == "");
    RC_ASSERT(outcome.status == DOSA_OK);
    RC_ASSERT(outcome.damage == "");
    for (std::int64_t r = 0; r < problem.num_queries; ++r) {
      const Window w = window(problem, r);
      const auto expected = row_scores(problem, r);
      for (std::int64_t i = 0; i < problem.num_keys; ++i) {
        const float got = outcome.scores[static_cast<std::size_t>(r * problem.num_keys + i)];
        const float want = i < w.begin || i >= w.end
                               ? -std::numeric_limits<float>::infinity()
                               : expected[static_cast<std::size_t>(i - w.begin)];
        if (!same(got, want))
          RC_FAIL("row " + std::to_string(r) + " key " + std::to_string(i) + ": expected " +
                  std::to_string(want) + ", got " + std::to_string(got));
      }
    }
  });
}

// The properties above are about pruning only if keys are in fact pruned.
TEST(Exactness, ScreeningTakesPart) {
  std::int64_t screened = 0;
  std::int64_t scored = 0;
  std::int64_t visible = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Recipe recipe;
    recipe.kind = seed % 2 == 0 ? Kind::kTrained : Kind::kReal;
    recipe.weights = Weights::kMostlyNegative;
    recipe.scales = Scales::kPositive;
    recipe.num_queries = 2;
    recipe.num_heads = 32;
    recipe.sixteenths = 8;
    recipe.num_keys = 30000;
    recipe.topk = 32;
    recipe.seed = seed;
    const Problem problem = make_problem(recipe);
    dosa_options options = make_options();
    options.mode = DOSA_MODE_DOSA;
    const Outcome outcome = run(problem, {}, options);
    EXPECT_EQ(difference(problem, top_k(problem, {}), outcome), "") << recipe;
    screened += outcome.stats.screened;
    scored += outcome.stats.fully_scored;
    visible += outcome.stats.visible;
  }
  EXPECT_GT(screened, visible / 2);
  EXPECT_LT(scored, visible);
}

}  // namespace
}  // namespace dosa::oracle
