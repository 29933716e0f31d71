// SPDX-License-Identifier: Apache-2.0
//
// How inputs lie in memory: page tables, page sizes, strided views; and what a rotation of queries
// and keys may change.
#include "expect_rows.hpp"
#include "unit/contract/fenced.hpp"

namespace dosa::oracle {
namespace {

Problem drawn(std::int64_t rows, std::int64_t keys, int topk) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.num_queries = static_cast<int>(rows);
  recipe.num_heads = 5;
  recipe.num_keys = static_cast<int>(keys);
  recipe.topk = topk;
  return make_problem(recipe);
}

/// A request for slots through a table of shuffled pages, one row of it per query or one for all,
/// with as many pages as the keys need.
Request slots(const Problem& problem, int page_size, bool one_table, std::uint64_t seed) {
  Request request;
  request.form = IndexForm::kSlot;
  request.page_size = page_size;
  request.page_table_pages = (problem.num_keys + page_size - 1) / page_size;
  request.one_table = one_table;
  Random random(seed);
  for (std::int64_t row = 0; row < (one_table ? 1 : problem.num_queries); ++row) {
    std::vector<std::int32_t> pages;
    for (std::int32_t p = 0; p < request.page_table_pages; ++p) pages.push_back(3 * p + 1);
    random.shuffle(pages);
    request.page_table.insert(request.page_table.end(), pages.begin(), pages.end());
  }
  return request;
}

// A table of blocks is not a table of tokens: shuffled blocks, the last one in part, and a table
// that ends at a page that may not be read.
TEST(Case62, ATableOfBlocksThatEndsAtAFence) {
  for (const std::int64_t keys : {1, 63, 64, 65, 500, 640}) {
    Problem problem = drawn(4, keys, 40);
    const Request request = slots(problem, 64, false, 5591);
    Arguments arguments(problem, request);
    const Fenced table = fence(request.page_table, true);
    arguments.get().page_table = table.as<std::int32_t>();
    const std::vector<Row> expected = top_k(problem, request);
    const dosa_options options = make_options(request);
    std::size_t bytes = 0;
    ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
    std::vector<std::uint8_t> workspace(bytes);
    Ids ids(4 * 40, 77);
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids.data();
    output.indices_stride = 40;
    ASSERT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
    for (std::size_t r = 0; r < 4; ++r) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(40 * r);
      EXPECT_EQ(Ids(first, first + 40), expected[r].ids) << keys;
    }
  }
}

TEST(Case63, AnyPageSize) {
  const Problem problem = drawn(3, 1300, 64);
  for (const int page : {1, 2, 15, 16, 17, 32, 63, 64, 65, 128, 256, 640, 1299, 1300, 1301}) {
    for (const bool one_table : {false, true}) {
      const Request request = slots(problem, page, one_table, 63);
      ASSERT_NO_FATAL_FAILURE(expect_oracle(problem, 1, request)) << page;
    }
  }
}

TEST(Case64, StridedViews) {
  const Problem problem = drawn(7, 900, 33);
  const std::vector<Row> expected = top_k(problem, {});
  for (const Layout& layout : std::vector<Layout>{{1, 0, 0, 0, 0, 0},
                                                  {0, 1, 0, 0, 0, 4},
                                                  {0, 0, 1, 0, 0, 8},
                                                  {0, 0, 0, 1, 2, 12},
                                                  {80, 16, 5, 1, 1, 1},
                                                  {3, 3, 3, 3, 3, 63},
                                                  {4096, 272, 128, 2048, 77, 33}}) {
    for (const int mode : all_modes()) {
      dosa_options options = make_options();
      options.mode = mode;
      EXPECT_EQ(difference(problem, expected, run(problem, {}, options, layout)), "");
    }
  }
}

/// Every four coordinates (a, b, c, d) become H (a, b, c, d)' with the Hadamard matrix of order 4:
/// lengths double, dot products grow by 4, and small integers stay exact.
void rotate(std::vector<std::uint8_t>& codes) {
  for (std::size_t at = 0; at < codes.size(); at += 4) {
    int x[4];
    for (std::size_t j = 0; j < 4; ++j) {
      x[j] = decode_e4m3(codes[at + j]).units / 512;  // INT: whole numbers
    }
    const int y[4] = {x[0] + x[1] + x[2] + x[3], x[0] - x[1] + x[2] - x[3],
                      x[0] + x[1] - x[2] - x[3], x[0] - x[1] - x[2] + x[3]};
    for (std::size_t j = 0; j < 4; ++j) codes[at + j] = encode_e4m3(y[j]);
  }
}

// A rotation belongs to both sides: then it changes no id. On one side alone it changes the answer,
// which no selector can see.
TEST(Case86, RotateBothSidesOrNeither) {
  const Problem plain = drawn(6, 5000, 100);
  Problem both = plain;
  rotate(both.q);
  rotate(both.k);
  Problem one = plain;
  rotate(one.q);
  for (const int mode : all_modes()) {
    dosa_options options = make_options();
    options.mode = mode;
    const Outcome before = run(plain, {}, options);
    const Outcome after = run(both, {}, options);
    EXPECT_EQ(before.ids, after.ids);
    for (std::size_t i = 0; i < before.scores.size(); ++i) {
      ASSERT_EQ(4 * before.scores[i], after.scores[i]);
    }
    EXPECT_NE(before.ids, run(one, {}, options).ids);
  }
  expect_oracle(both);
}

// Where every key is selected, selection cannot be at fault: the answer is the window.
TEST(Case87, KAboveTheLengthIsEverything) {
  for (const std::int64_t keys : {1, 255, 2047, 2048, 5000}) {
    for (const int more : {0, 1, 100}) {
      Problem problem = drawn(3, keys, static_cast<int>(keys) + more);
      const Outcome outcome = run(problem, {}, make_options());
      for (std::size_t i = 0; i < outcome.ids.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i) % problem.topk;
        ASSERT_EQ(outcome.ids[i], at < keys ? static_cast<std::int32_t>(at) : -1);
      }
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
