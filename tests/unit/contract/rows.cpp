// SPDX-License-Identifier: Apache-2.0
//
// Windows, short rows, the -1 suffix, index forms and forced keys, by hand and against the oracle.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

using Ids = std::vector<std::int32_t>;

class ContractRows : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] Outcome answer(const Problem& problem, const Request& request = {}) const {
    dosa_options options = make_options(request);
    options.mode = GetParam();
    options.threads = 2;
    const Outcome outcome = run(problem, request, options);
    EXPECT_EQ(difference(problem, top_k(problem, request), outcome), "");
    return outcome;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryMode, ContractRows, ::testing::Values(0, 1, 2, 3, 4));

std::vector<float> counted(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST_P(ContractRows, WindowsAreClampedAndMayBeEmpty) {
  Problem p = dial(counted(100), 9, 3);
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  p.start = {0, -5, 98, 100, 50, 60, kMin, kMax, 7};
  p.end = {100, 2, 1000, 100, 50, 40, kMax, kMin, 8};
  const Outcome outcome = answer(p);
  const std::vector<Ids> expected = {{97, 98, 99}, {0, 1, -1},   {98, 99, -1},
                                     {-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1},
                                     {97, 98, 99}, {-1, -1, -1}, {7, -1, -1}};
  for (std::int64_t r = 0; r < 9; ++r) {
    EXPECT_EQ(ids_of(outcome, r, 3), expected[static_cast<std::size_t>(r)]) << "row " << r;
  }
  EXPECT_TRUE(std::isnan(outcome.scores[5]));
}

TEST_P(ContractRows, OneWindowBoundMayBeNull) {
  Problem p = dial(counted(50), 2, 3);
  p.start = {10, 48};
  EXPECT_EQ(ids_of(answer(p), 1, 3), (Ids{48, 49, -1}));
  p.start.clear();
  p.end = {10, 2};
  EXPECT_EQ(ids_of(answer(p), 0, 3), (Ids{7, 8, 9}));
}

TEST_P(ContractRows, ShortRowsReturnAllTheirKeys) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t n : {1, 2, 7, 8, 9, 255, 256, 257}) {
    Problem p = dial(counted(n), 1, 256);
    p.k_scale[0] = kNan;  // NaN scores included
    const Outcome outcome = answer(p);
    for (std::int32_t i = 0; i < 256; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (n <= 256) {
        EXPECT_EQ(outcome.ids[at], i < n ? i : -1) << n;
      } else {
        EXPECT_EQ(outcome.ids[at], i + 1);
      }
    }
  }
}

TEST_P(ContractRows, MoreAskedForThanThereAre) {
  const Problem p = dial(counted(100), 2, 8192);
  const Outcome outcome = answer(p);
  EXPECT_EQ(outcome.ids[99], 99);
  EXPECT_EQ(outcome.ids[100], -1);
  EXPECT_EQ(outcome.ids[8192 + 8191], -1);
}

TEST_P(ContractRows, NoQueriesOrNoKeys) {
  const Problem no_queries = dial(counted(10), 0, 4);
  EXPECT_EQ(answer(no_queries).stats.rows, 0);
  const Problem no_keys = dial({}, 3, 4);
  const Outcome outcome = answer(no_keys);
  EXPECT_EQ(outcome.ids, Ids(12, -1));
  const Problem neither = dial({}, 0, 4);
  EXPECT_EQ(answer(neither).stats.rows, 0);
}

TEST_P(ContractRows, EveryIndexForm) {
  Problem p = dial(counted(500), 3, 4);
  p.start = {0, 100, -3};
  p.end = {500, 300, 17};
  Request request;
  EXPECT_EQ(ids_of(answer(p, request), 1, 4), (Ids{296, 297, 298, 299}));
  request.form = IndexForm::kRelative;
  EXPECT_EQ(ids_of(answer(p, request), 1, 4), (Ids{196, 197, 198, 199}));
  request.form = IndexForm::kOffset;
  request.index_offset = {5, 1000, -7};
  EXPECT_EQ(ids_of(answer(p, request), 1, 4), (Ids{1196, 1197, 1198, 1199}));
  EXPECT_EQ(ids_of(answer(p, request), 2, 4), (Ids{6, 7, 8, 9}));
  request.form = IndexForm::kSlot;
  for (const int page : {1, 16, 64, 500, 640}) {
    for (const bool one : {true, false}) {
      request.page_size = page;
      request.page_table_pages = (500 + page - 1) / page;
      request.one_table = one;
      request.page_table.resize(static_cast<std::size_t>(request.page_table_pages * (one ? 1 : 3)));
      for (std::size_t i = 0; i < request.page_table.size(); ++i) {
        request.page_table[i] = static_cast<std::int32_t>(i * 7919 % 1000);
      }
      static_cast<void>(answer(p, request));  // compared with the oracle
    }
  }
}

TEST_P(ContractRows, MappedIdsKeepTheOrderOfKeys) {
  const Problem p = dial(counted(64), 1, 3);
  Request request;
  request.form = IndexForm::kSlot;
  request.page_size = 1;
  request.page_table_pages = 64;
  for (std::int32_t i = 0; i < 64; ++i) request.page_table.push_back(1000 - i);
  EXPECT_EQ(ids_of(answer(p, request), 0, 3), (Ids{939, 938, 937}));  // keys 61, 62, 63
}

TEST_P(ContractRows, ForcedKeys) {
  const Problem p = dial(counted(5000), 1, 5);
  Request request;
  request.forced_first = 2;
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 1, 4997, 4998, 4999}));
  request.forced_last = 1;
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 1, 4997, 4998, 4999}));
  request.forced_first = 4;
  request.forced_last = 3;  // seven forced keys, five places: ties by id
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 1, 2, 3, 4997}));
  request.forced_first = 10000;
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 1, 2, 3, 4}));
  request.forced_first = 1;
  request.order = Order::kByScore;
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 4997, 4998, 4999, 4996}));
  request.forced_first = std::numeric_limits<std::int32_t>::max();
  request.forced_last = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(ids_of(answer(p, request), 0, 5), (Ids{0, 1, 2, 3, 4}));
}

// Where the first K keys are forced nothing is left to find out, not even beside scores of +Inf.
TEST_P(ContractRows, ForcedKeysThatFillTheRowAreNotScored) {
  Problem p = dial(counted(5000), 2, 5);
  p.k_scale[3] = std::numeric_limits<float>::infinity();
  p.k_scale[4900] = std::numeric_limits<float>::infinity();
  p.start = {0, 2};
  p.end = {5000, 4999};
  for (const Order order : {Order::kById, Order::kByScore}) {
    Request request;
    request.order = order;
    request.forced_first = 5;
    request.forced_last = 200;
    const Outcome outcome = answer(p, request);
    EXPECT_EQ(ids_of(outcome, 0, 5), (Ids{0, 1, 2, 3, 4}));
    EXPECT_EQ(ids_of(outcome, 1, 5), (Ids{2, 3, 4, 5, 6}));
    EXPECT_EQ(outcome.stats.fully_scored, 0);
    EXPECT_EQ(outcome.rows[0].kth_score, std::numeric_limits<float>::infinity());
    request.forced_first = 4;  // the last place is not settled: key 4900 scores +Inf as well
    EXPECT_GT(answer(p, request).stats.fully_scored, 0);
  }
}

TEST_P(ContractRows, ForcedKeysStayInTheirWindow) {
  Problem p = dial(counted(300), 3, 4);
  p.start = {100, 298, 7};
  p.end = {200, 300, 7};
  Request request;
  request.forced_first = 1;
  request.forced_last = 1;
  const Outcome outcome = answer(p, request);
  EXPECT_EQ(ids_of(outcome, 0, 4), (Ids{100, 197, 198, 199}));
  EXPECT_EQ(ids_of(outcome, 1, 4), (Ids{298, 299, -1, -1}));
  EXPECT_EQ(ids_of(outcome, 2, 4), (Ids{-1, -1, -1, -1}));
}

TEST_P(ContractRows, ForcedKeysMayScoreNan) {
  Problem p = dial(counted(6000), 1, 3);
  p.k_scale[0] = std::numeric_limits<float>::quiet_NaN();
  Request request;
  request.forced_first = 1;
  EXPECT_EQ(ids_of(answer(p, request), 0, 3), (Ids{0, 5998, 5999}));
}

}  // namespace
}  // namespace dosa::oracle
