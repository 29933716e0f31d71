// SPDX-License-Identifier: Apache-2.0
//
// Windows, padding and odd rows that made public selectors return garbage or fault.
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

TEST(Case26, EverySlotIsWrittenOnTieOverflow) {
  for (const std::int64_t above : {0, 888, 889, 890, 2047}) {
    for (const std::int64_t tied : {1158, 1159, 1160, 1536, 6000}) {
      Random random(26);
      std::vector<float> values;
      for (std::int64_t i = 0; i < 7613; ++i) {
        values.push_back(i < above ? 2.0F : (i < above + tied ? 1.0F : 0.25F));
      }
      random.shuffle(values);
      expect_dial(values, 2, 2048);  // the harness poisons the output and looks for what is left
    }
  }
}

TEST(Case27, AHundredWinnersAndZeros) {
  for (const std::int64_t winners : {0, 1, 99, 100, 101, 2048}) {
    std::vector<float> values(8320, 1.0F);
    Problem problem = dial(values, 2, 2048, 1.0F, 1, 16);
    std::vector<std::int64_t> ids(8320);
    std::iota(ids.begin(), ids.end(), 0);
    Random random(27);
    random.shuffle(ids);
    std::vector<float> scores(8320, 0.0F);
    for (std::int64_t j = winners; j < 8320; ++j) {
      problem.k[static_cast<std::size_t>(ids[static_cast<std::size_t>(j)]) * 16] = encode_e4m3(-1);
    }
    for (std::int64_t j = 0; j < winners; ++j) {
      scores[static_cast<std::size_t>(ids[static_cast<std::size_t>(j)])] = 1.0F;
    }
    const std::vector<Row> expected(2, select(problem, {}, 0, scores));
    for (const auto id : expected[0].ids) ASSERT_NE(id, -1);
    expect_rows(problem, expected);
  }
}

TEST(Case32, NoIdAtOrBehindTheEnd) {
  for (const std::int32_t shift : {-1, 0, 1, 6}) {
    Problem problem = dial(std::vector<float>(4096, 1.0F), 4, 2048, 1.0F, 1, 16);
    problem.end = {2049 + shift, 2050 + shift, 2051 + shift, 2053 + shift};
    for (std::size_t i = static_cast<std::size_t>(2049 + shift); i < 4096; ++i) {
      problem.k_scale[i] = 1e9F;
    }
    for (const int mode : all_modes()) {
      dosa_options options = make_options();
      options.mode = mode;
      const Outcome outcome = run(problem, {}, options);
      for (std::int64_t r = 0; r < 4; ++r) {
        for (const auto id : ids_of(outcome, r, 2048)) {
          ASSERT_LT(id, problem.end[static_cast<std::size_t>(r)]);
        }
      }
    }
    expect_oracle(problem);
  }
}

// A page table that is too narrow for a window is refused; one that just fits works, also where
// the buffer of keys is far wider.
TEST(Case33, PageTableNarrowerThanTheKeys) {
  Problem problem = dial(std::vector<float>(131072, 1.0F), 8, 64, 1.0F, 1, 16);
  problem.start.assign(8, 1000);
  problem.end.assign(8, 1000 + 4096);
  Request request;
  request.form = IndexForm::kSlot;
  request.page_size = 64;
  for (const std::int64_t pages : {63, 64, 65}) {
    request.page_table_pages = pages;
    request.page_table.assign(static_cast<std::size_t>(8 * pages), 7);
    if (pages >= 64) {
      expect_oracle(problem, 1, request);
      continue;
    }
    const Outcome outcome = run(problem, request, make_options(request));
    EXPECT_EQ(outcome.status, DOSA_INVALID_ARGUMENT);
    EXPECT_NE(outcome.error.find("page_table_pages"), std::string::npos) << outcome.error;
  }
}

TEST(Case34, AnyWidth) {
  Random random(34);
  std::vector<float> values;
  for (int i = 0; i < 20000; ++i) values.push_back(static_cast<float>(random.below(5000)));
  for (const int k : {1, 2, 63, 64, 65, 511, 512, 513, 1024, 2047, 2048, 2051, 4096, 8191, 8192}) {
    expect_dial(values, 2, k);
  }
}

TEST(Case35, ALongCallThenAShortOneInTheSameBuffers) {
  Random random(35);
  std::vector<float> values;
  for (int i = 0; i < 50000; ++i) values.push_back(static_cast<float>(random.uniform()));
  for (const std::size_t n : {1U, 99U, 100U, 101U, 2047U, 2048U}) {
    expect_dial(values, 2, 2048);
    expect_dial(std::vector<float>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)),
                2, 2048);
  }
}

TEST(Case36, FewerKeysThanK) {
  for (const std::int64_t n : {1, 2, 248, 249, 250, 2046, 2047, 2048}) {
    expect_dial(std::vector<float>(static_cast<std::size_t>(n), 1.0F), 3, 2048);
  }
}

TEST(Case37, TwoRequestsInOneBatchEqualEachAlone) {
  for (const std::int32_t split : {4999, 5000, 5001}) {
    Recipe recipe;
    recipe.kind = Kind::kInt;
    recipe.weights = Weights::kSigned;
    recipe.num_queries = 6;
    recipe.num_heads = 4;
    recipe.num_keys = 12000;
    recipe.topk = 512;
    Problem both = make_problem(recipe);
    for (std::int32_t r = 0; r < 6; ++r) {
      both.start.push_back(r < 3 ? 0 : split);
      both.end.push_back(r < 3 ? split : 12000);
    }
    const Outcome together = run(both, {}, make_options());
    Problem first = both;
    first.num_queries = 3;
    first.num_keys = split;
    first.q.resize(first.q.size() / 2);
    first.weights.resize(first.weights.size() / 2);
    first.k.resize(static_cast<std::size_t>(split) * 16);
    first.k_scale.resize(static_cast<std::size_t>(split));
    first.start.clear();
    first.end.clear();
    const Outcome alone = run(first, {}, make_options());
    EXPECT_EQ(Ids(together.ids.begin(), together.ids.begin() + 3 * 512), alone.ids);
    expect_oracle(both);
  }
}

TEST(Case39, ChunksOfRowsEqualOneCall) {
  const auto rows = full_or(10000, 1500);
  Random random(39);
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(static_cast<float>(random.below(400)));
  Problem whole = dial(values, rows, 64, 1.0F, 1, 16);
  for (std::int32_t r = 0; r < rows; ++r) whole.end.push_back(r + 1);  // causal
  whole.start.assign(static_cast<std::size_t>(rows), 0);
  const Outcome expected = run(whole, {}, make_options());
  ASSERT_EQ(expected.status, DOSA_OK);
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{63}, std::int64_t{64}, rows - 1}) {
    const std::vector<float> visible(values.begin(), values.begin() + row + 1);
    EXPECT_EQ(ids_of(expected, row, 64), select(whole, {}, row, visible).ids);
  }
  for (const std::int64_t chunk : {std::int64_t{409}, rows / 3, std::int64_t{4096}}) {
    Ids joined;
    for (std::int64_t first = 0; first < rows; first += chunk) {
      const std::int64_t last = std::min(first + chunk, rows);
      Problem part = whole;
      part.num_queries = last - first;
      part.q.assign(whole.q.begin() + first * 16, whole.q.begin() + last * 16);
      part.weights.assign(whole.weights.begin() + first, whole.weights.begin() + last);
      part.start.assign(whole.start.begin() + first, whole.start.begin() + last);
      part.end.assign(whole.end.begin() + first, whole.end.begin() + last);
      const Outcome outcome = run(part, {}, make_options());
      joined.insert(joined.end(), outcome.ids.begin(), outcome.ids.end());
    }
    EXPECT_TRUE(joined == expected.ids) << chunk;
  }
}

TEST(Case40, NewRowsBehindCachedKeys) {
  for (const std::int32_t cached : {5999, 6000, 6001}) {
    const std::int32_t rows = 100;
    std::vector<float> values(static_cast<std::size_t>(cached + rows), 1.0F);
    for (std::int32_t i = cached - 10; i < cached; ++i) values[static_cast<std::size_t>(i)] = 9.0F;
    Problem problem = dial(values, rows, 64, 1.0F, 1, 16);
    std::vector<Row> expected;
    for (std::int32_t r = 0; r < rows; ++r) {
      problem.start.push_back(0);
      problem.end.push_back(cached + r + 1);
    }
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::vector<float> visible(values.begin(), values.begin() + cached + r + 1);
      expected.push_back(select(problem, {}, r, visible));
      ASSERT_EQ(expected.back().ids.back(), cached - 1);
    }
    expect_rows(problem, expected);
  }
}

TEST(Case41, LengthsBelowZero) {
  for (const std::int32_t draft : {4, 6}) {
    for (const std::int32_t length : {1, 2}) {
      Problem problem = dial(std::vector<float>(3000, 1.0F), draft, 2048, 1.0F, 1, 16);
      for (std::int32_t r = 0; r < draft; ++r) problem.end.push_back(length - draft + 1 + r);
      const Outcome outcome = run(problem, {}, make_options());
      for (std::int32_t r = 0; r < draft; ++r) {
        const std::int32_t n = std::max(0, problem.end[static_cast<std::size_t>(r)]);
        const Ids ids = ids_of(outcome, r, 2048);
        for (std::int32_t j = 0; j < 2048; ++j) {
          ASSERT_EQ(ids[static_cast<std::size_t>(j)], j < n ? j : -1);
        }
      }
      expect_oracle(problem);
    }
  }
}

TEST(Case44, NoRowsOrNoKeys) {
  for (const std::int64_t rows : {0, 1, 3, 64}) {
    for (const std::size_t keys : {0U, 1U}) {
      expect_dial(std::vector<float>(keys, 1.0F), rows, 2048);
    }
  }
}

TEST(Case45, NoIdTwiceAmongInfinitiesAndNan) {
  for (const std::int64_t n : {2999, 3000, 5000}) {
    for (const float rest : {std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
      Problem problem =
          dial(std::vector<float>(static_cast<std::size_t>(n), rest), 2, 2048, -1.0F, 1, 16);
      for (std::int64_t i = 0; i < n; ++i)
        problem.k[static_cast<std::size_t>(i) * 16] = encode_e4m3(448);
      problem.k_scale[1234] = 1.0F;
      for (const int mode : all_modes()) {
        dosa_options options = make_options();
        options.mode = mode;
        const Outcome outcome = run(problem, {}, options);
        const Ids ids = ids_of(outcome, 0, 2048);
        EXPECT_EQ(std::set<std::int32_t>(ids.begin(), ids.end()).size(), 2048U);
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 1234), 1);
      }
      expect_oracle(problem);
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
