// SPDX-License-Identifier: Apache-2.0
// What the differential fuzzer does with a difference: leaves out all that is not needed to show
// it, and writes a file that the command runs.
#include "fuzz/shrink.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "io/trace.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"
#include "unit/cli/command.hpp"

namespace dosa::fuzz {
namespace {

using oracle::Problem;

Problem drawn() {
  oracle::Recipe recipe;
  recipe.kind = oracle::Kind::kInt;
  recipe.weights = oracle::Weights::kSigned;
  recipe.windows = oracle::Windows::kRandom;
  recipe.num_queries = 7;
  recipe.num_heads = 5;
  recipe.sixteenths = 3;
  recipe.num_keys = 60;
  recipe.topk = 9;
  recipe.seed = 3;
  Problem problem = oracle::make_problem(recipe);
  for (std::size_t i = 0; i < problem.k_scale.size(); ++i) {
    problem.k_scale[i] = static_cast<float>(i + 1);  // names the key
  }
  return problem;
}

std::multiset<float> visible(const Problem& problem, std::int64_t row) {
  const oracle::Window w = oracle::window(problem, row);
  return {problem.k_scale.begin() + w.begin, problem.k_scale.begin() + w.end};
}

TEST(Shrink, WindowsKeepTheKeysThatStay) {
  const Problem whole = drawn();
  for (std::int64_t begin = 0; begin < 60; begin += 7) {
    for (std::int64_t end = begin; end <= 60; end += 5) {
      const Problem rest = without_keys(whole, begin, end);
      ASSERT_EQ(rest.num_keys, 60 - (end - begin));
      for (std::int64_t row = 0; row < 7; ++row) {
        std::multiset<float> expected = visible(whole, row);
        for (std::int64_t i = begin; i < end; ++i) expected.erase(static_cast<float>(i + 1));
        EXPECT_EQ(visible(rest, row), expected) << begin << " " << end << " " << row;
      }
    }
  }
}

TEST(Shrink, WhatStaysScoresAsBefore) {
  const Problem whole = drawn();
  const Problem rows = without_rows(whole, 2, 5);
  EXPECT_EQ(oracle::score(rows, 2, 11), oracle::score(whole, 5, 11));
  const Problem keys = without_keys(whole, 0, 11);
  EXPECT_EQ(oracle::score(keys, 3, 0), oracle::score(whole, 3, 11));
  Problem silent = whole;  // heads and coordinates that say nothing can be left out
  for (std::size_t row = 0; row < 7; ++row) silent.weights[row * 5 + 1] = 0.0F;
  EXPECT_EQ(oracle::score(without_heads(silent, 1, 2), 3, 11), oracle::score(silent, 3, 11));
  for (std::size_t at = 0; at < silent.k.size(); ++at) {
    if (at % 48 >= 16 && at % 48 < 32) silent.k[at] = 0;
  }
  EXPECT_EQ(oracle::score(without_coordinates(silent, 1, 2), 3, 11), oracle::score(silent, 3, 11));
}

// The fault: one key with a NaN scale, seen by a row whose third head of five has a large weight.
TEST(Shrink, LeavesWhatShowsTheFault) {
  Problem problem = drawn();
  problem.k_scale[37] = std::numeric_limits<float>::quiet_NaN();
  problem.weights[4 * 5 + 2] = 1e6F;
  problem.start.assign(7, 0);
  problem.end.assign(7, 60);
  int calls = 0;
  const auto shows = [&calls](const Problem& p) {
    ++calls;
    bool nan = false;
    for (const float scale : p.k_scale) nan = nan || std::isnan(scale);
    bool large = false;
    for (const float weight : p.weights) large = large || weight == 1e6F;
    return nan && large && p.topk >= 3;
  };
  const Problem small = shrink(problem, shows, 2000);
  EXPECT_TRUE(shows(small));
  EXPECT_EQ(small.num_queries, 1);
  EXPECT_EQ(small.num_keys, 1);
  EXPECT_EQ(small.num_heads, 1);
  EXPECT_EQ(small.head_dim, 16);
  EXPECT_EQ(small.topk, 3);
  EXPECT_EQ(small.q.size(), 16U);
  EXPECT_EQ(small.k.size(), 16U);
  EXPECT_LT(calls, 300);
}

TEST(Shrink, StopsAfterItsTries) {
  int calls = 0;
  const Problem whole = drawn();
  const Problem same = shrink(
      whole, [&calls](const Problem&) { return ++calls < 0; }, 50);
  EXPECT_LE(calls, 60);
  EXPECT_EQ(same.q, whole.q);
}

class ShrunkFile : public test::CommandTest {};

TEST_F(ShrunkFile, RunsWithTheCommandThatIsReturned) {
  const Problem problem = drawn();
  dosa_options options = oracle::make_options();
  options.mode = DOSA_MODE_DOSA;
  options.heads = 3;
  options.projection = 0;
  options.allowance = DOSA_ALLOWANCE_JOINT;
  options.forced_last = 2;
  const std::string command = write_trace(problem, options, file("difference"));
  std::istringstream words(command);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  ASSERT_EQ(arguments.front(), "dosa");
  arguments.erase(arguments.begin());
  EXPECT_NE(succeed(arguments).out.find("identical in all 7 rows"), std::string::npos);
  const io::Trace trace = io::Trace::open(file("difference"));
  EXPECT_EQ(trace.problem().num_heads, 5);
  EXPECT_EQ(std::vector<std::int32_t>(trace.problem().k_end, trace.problem().k_end + 7),
            problem.end);
}

}  // namespace
}  // namespace dosa::fuzz
