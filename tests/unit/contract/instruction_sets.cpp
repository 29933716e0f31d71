// SPDX-License-Identifier: Apache-2.0
//
// Every instruction set of the machine gives the oracle's bytes, and each other's: in every mode,
// on every number of threads, in one call, in pieces and row by row; and its bounds dominate.
#include "instruction_sets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

/// Ids and scores as bytes.
std::string bytes_of(const Outcome& outcome) {
  std::string bytes(reinterpret_cast<const char*>(outcome.ids.data()),
                    outcome.ids.size() * sizeof(std::int32_t));
  return bytes.append(reinterpret_cast<const char*>(outcome.scores.data()),
                      outcome.scores.size() * sizeof(float));
}

Problem trained(int queries, int keys, int topk) {
  Recipe recipe;
  recipe.kind = Kind::kTrained;
  recipe.weights = Weights::kMostlyNegative;
  recipe.scales = Scales::kAnything;
  recipe.windows = Windows::kCausal;
  recipe.num_queries = queries;
  recipe.num_heads = 32;
  recipe.sixteenths = 8;
  recipe.num_keys = keys;
  recipe.topk = topk;
  return make_problem(recipe);
}

/// Rows [first, last) of a problem that has windows.
Problem rows_of(const Problem& whole, std::int64_t first, std::int64_t last) {
  Problem part = whole;
  const std::int64_t width = static_cast<std::int64_t>(whole.num_heads) * whole.head_dim;
  const auto cut = [=](const auto& values, std::int64_t each) {
    return std::decay_t<decltype(values)>(values.begin() + first * each,
                                          values.begin() + last * each);
  };
  part.num_queries = last - first;
  part.q = cut(whole.q, width);
  part.weights = cut(whole.weights, whole.num_heads);
  part.start = cut(whole.start, 1);
  part.end = cut(whole.end, 1);
  return part;
}

TEST(InstructionSets, AreToldApart) {
  std::set<std::string> names;
  for (const std::int64_t set : test::instruction_sets()) {
    const test::UseInstructionSet use(set);
    EXPECT_TRUE(names.insert(dosa_simd_target()).second) << dosa_simd_target();
  }
  EXPECT_EQ(names.count("scalar"), 1U);
  EXPECT_EQ(names.count(dosa_simd_target()), 1U) << "the best one is restored";
}

TEST(InstructionSets, EqualTheOracle) {
  std::vector<Problem> problems;
  for (std::uint64_t seed = 0; seed < 27; ++seed) {
    Random random(seed);
    Recipe recipe;
    recipe.kind = static_cast<Kind>(seed % static_cast<int>(Kind::kTrained));
    recipe.weights = static_cast<Weights>(random.below(static_cast<int>(Weights::kCount)));
    recipe.scales = static_cast<Scales>(random.below(static_cast<int>(Scales::kCount)));
    recipe.windows = static_cast<Windows>(random.below(static_cast<int>(Windows::kCount)));
    recipe.num_queries = static_cast<int>(random.between(1, 6));
    recipe.num_heads = static_cast<int>(random.between(1, 70));
    recipe.sixteenths = static_cast<int>(random.between(1, 16));
    recipe.num_keys = static_cast<int>(random.between(1, 400));
    recipe.topk = static_cast<int>(random.between(1, 60));
    recipe.nan_codes = random.once_in(4) ? 2 : 0;
    recipe.seed = seed;
    problems.push_back(make_problem(recipe));
  }
  problems.push_back(trained(2, 4200, 64));
  for (const Problem& problem : problems) {
    const std::vector<Row> expected = top_k(problem, {});
    for (const std::int64_t set : test::instruction_sets()) {
      const test::UseInstructionSet use(set);
      for (const int mode : {DOSA_MODE_BASE, DOSA_MODE_FULL, DOSA_MODE_DOSA}) {
        dosa_options options = make_options();
        options.mode = mode;
        options.threads = 2;
        ASSERT_EQ(difference(problem, expected, run(problem, {}, options)), "")
            << dosa_simd_target() << " " << describe(options);
      }
    }
  }
}

// 20 runs, threads 1 to 8, instruction sets, modes, and the rows of a call cut at every size: each
// combination of two of them occurs.
TEST(InstructionSets, ThreadsAndChunksGiveTheSameBytes) {
  constexpr std::int64_t kRows = 12;
  const Problem whole = trained(kRows, 4300, 100);
  const std::string expected = bytes_of(run(whole, {}, make_options()));
  const std::vector<std::int64_t>& sets = test::instruction_sets();
  const std::int64_t chunks[] = {kRows, 1, 3, 4, 5, 7, 11};
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto at = static_cast<std::size_t>(repeat);
    const test::UseInstructionSet use(sets[at % sets.size()]);
    dosa_options options = make_options();
    options.threads = 1 + repeat % 8;
    options.mode = repeat % 5;
    const std::int64_t chunk = chunks[at % std::size(chunks)];
    Outcome joined;
    for (std::int64_t first = 0; first < kRows; first += chunk) {
      const Outcome part = run(rows_of(whole, first, std::min(first + chunk, kRows)), {}, options);
      ASSERT_EQ(part.status, DOSA_OK) << part.error;
      ASSERT_EQ(part.damage, "");
      joined.ids.insert(joined.ids.end(), part.ids.begin(), part.ids.end());
      joined.scores.insert(joined.scores.end(), part.scores.begin(), part.scores.end());
    }
    EXPECT_TRUE(bytes_of(joined) == expected)
        << dosa_simd_target() << " chunks of " << chunk << " " << describe(options);
  }
}

TEST(InstructionSets, BoundsDominateScores) {
  const Problem problem = trained(2, 1500, 64);
  for (const std::int64_t set : test::instruction_sets()) {
    const test::UseInstructionSet use(set);
    for (const int heads : {1, 7, 14, 32}) {
      dosa_options options = make_options();
      options.heads = heads;
      for (std::int64_t row = 0; row < problem.num_queries; ++row) {
        const Bounds found = run_bounds(problem, options, row);
        ASSERT_EQ(found.status, DOSA_OK) << found.error;
        const std::vector<float> scores = row_scores(problem, row);
        const Window visible = window(problem, row);
        for (std::int64_t i = visible.begin; i < visible.end; ++i) {
          const float score = scores[static_cast<std::size_t>(i - visible.begin)];
          if (std::isnan(score)) continue;
          ASSERT_GE(found.bounds[static_cast<std::size_t>(i)], score)
              << dosa_simd_target() << " row " << row << " key " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
