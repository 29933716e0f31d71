// SPDX-License-Identifier: Apache-2.0
//
// Head counts and widths, overflow of the score, a forgotten ReLU, hints that lie.
#include <limits>

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Case67, AnyHeadCount) {
  for (const int heads : {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 127, 128}) {
    for (const Kind kind : {Kind::kInt, Kind::kReal}) {
      Recipe recipe;
      recipe.kind = kind;
      recipe.weights = Weights::kSigned;
      recipe.scales = Scales::kPositive;
      recipe.num_queries = 2;
      recipe.num_heads = heads;
      recipe.sixteenths = 2;
      recipe.num_keys = 4500;
      recipe.topk = 100;
      ASSERT_NO_FATAL_FAILURE(expect_oracle(make_problem(recipe))) << recipe;
    }
  }
}

TEST(Case73, EveryWidthAndTheSameScoresEachTime) {
  for (int sixteenths = 1; sixteenths <= 16; ++sixteenths) {
    Recipe recipe;
    recipe.kind = Kind::kReal;
    recipe.weights = Weights::kSigned;
    recipe.scales = Scales::kPositive;
    recipe.num_queries = 1;
    recipe.num_heads = 12;
    recipe.sixteenths = sixteenths;
    recipe.num_keys = 4500;
    recipe.topk = 100;
    ASSERT_NO_FATAL_FAILURE(expect_oracle(make_problem(recipe), static_cast<int>(full_or(20, 4))))
        << recipe;
  }
}

TEST(Case77, SizesAreCheckedBeforeAnythingElse) {
  dosa_problem problem{};  // all pointers null: a look at them would fault
  problem.struct_size = sizeof problem;
  const dosa_options options = make_options();
  std::size_t bytes = 0;
  struct Shape {
    std::int64_t queries, keys;
    int heads, dim, topk;
  };
  for (const Shape& s : std::vector<Shape>{{-1, 10, 1, 16, 1},
                                           {1, -1, 1, 16, 1},
                                           {1, std::int64_t{1} << 40, 1, 16, 1},
                                           {std::numeric_limits<std::int64_t>::max(), 1, 1, 16, 1},
                                           {1, 10, 0, 16, 1},
                                           {1, 10, 1 << 30, 16, 1},
                                           {1, 10, 1, 0, 1},
                                           {1, 10, 1, 1 << 30, 1},
                                           {1, 10, 1, 16, 0},
                                           {1, 10, 1, 16, std::numeric_limits<int>::min()},
                                           {1, 10, 1, 16, std::numeric_limits<int>::max()}}) {
    problem.num_queries = s.queries;
    problem.num_keys = s.keys;
    problem.num_heads = s.heads;
    problem.head_dim = s.dim;
    problem.topk = s.topk;
    EXPECT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_INVALID_ARGUMENT);
    EXPECT_EQ(dosa_topk(&problem, &options, nullptr, nullptr, 0), DOSA_INVALID_ARGUMENT);
  }
}

TEST(Case78, TheReluComesBeforeTheSum) {
  for (const std::int64_t others : {2047, 2048, 2049}) {
    const int heads = 32;
    Problem p =
        dial(std::vector<float>(static_cast<std::size_t>(others + 1), 1.0F), 1, 2048, 1.0F, heads);
    std::fill(p.q.begin(), p.q.end(), std::uint8_t{0});
    p.q[0] = encode_e4m3(1);        // head 0 reads coordinate 0,
    p.q[128 + 1] = encode_e4m3(1);  // head 1 reads coordinate 1
    p.weights[1] = 1.0F;
    p.k[0] = encode_e4m3(2);
    p.k[1] = encode_e4m3(-10);
    for (std::size_t i = 1; i <= static_cast<std::size_t>(others); ++i) {
      p.k[i * 128] = p.k[i * 128 + 1] = encode_e4m3(0.5);
    }
    const Outcome outcome = run(p, {}, make_options());
    EXPECT_EQ(outcome.ids[0], 0);
    EXPECT_EQ(outcome.scores[0], 2.0F);
    for (std::int32_t i = 1; i < 2048; ++i) {
      EXPECT_EQ(outcome.ids[static_cast<std::size_t>(i)], i);
    }
    expect_oracle(p);
  }
}

TEST(Case81, ScoresThatOverflow) {
  for (const int winners : {9, 10, 11, 99, 101}) {
    for (const bool by_scale : {true, false}) {
      Recipe recipe;
      recipe.kind = Kind::kInt;
      recipe.weights = Weights::kSigned;
      recipe.num_queries = 2;
      recipe.num_heads = 64;
      recipe.sixteenths = 8;
      recipe.num_keys = 5000;
      recipe.topk = 100;
      Problem p = make_problem(recipe);
      std::fill(p.q.begin(), p.q.begin() + 64 * 128, encode_e4m3(448));
      for (std::size_t h = 0; h < 64; ++h) p.weights[h] = by_scale ? 1.0F : 1e30F;
      for (int j = 0; j < winners; ++j) {
        const auto at = static_cast<std::size_t>(j * 47 + 13);
        std::fill_n(p.k.begin() + static_cast<std::ptrdiff_t>(at * 128), 128, encode_e4m3(448));
        if (by_scale) p.k_scale[at] = 3e38F;
      }
      const auto expected = top_k(p, {});
      if (by_scale) {
        EXPECT_EQ(std::count(expected[0].scores.begin(), expected[0].scores.end(), kInf),
                  std::min(winners, 100));
      }
      expect_rows(p, expected);
    }
  }
}

// Positive and negative parts that each overflow: NaN scores rank last and drop no block.
TEST(Case81, InfinityMinusInfinity) {
  Problem p = dial(std::vector<float>(5000, 1.0F), 2, 100, 1e30F, 64, 128);
  for (std::size_t i = 0; i < p.weights.size(); ++i) p.weights[i] = i % 3 == 0 ? -3e30F : 2e30F;
  for (auto& code : p.q) code = encode_e4m3(256);
  Random random(81);
  for (std::size_t i = 0; i < 5000; ++i) {
    for (std::size_t d = 0; d < 128; ++d) p.k[i * 128 + d] = encode_e4m3(random.normal());
    if (i % 500 == 7)
      std::fill_n(p.k.begin() + static_cast<std::ptrdiff_t>(i * 128), 128, encode_e4m3(448));
    if (i % 400 == 9) p.k_scale[i] = 3e38F;
  }
  expect_oracle(p);
}

TEST(Case85, WidthOfTheCaller) {
  Random random(85);
  std::vector<float> values;
  for (int i = 0; i < 9000; ++i) values.push_back(static_cast<float>(random.uniform()));
  for (const int k : {511, 512, 513, 1023, 1024, 1025}) {
    const Problem problem = dial(values, 3, k, 1.0F, 1, 16);
    const std::vector<Row> expected(3, select(problem, {}, 0, values));
    for (const int gap : {0, 1, 7, 2048 - k}) {
      Layout layout;
      layout.indices = layout.scores = std::max(0, gap);
      EXPECT_EQ(difference(problem, expected, run(problem, {}, make_options(), layout)), "");
    }
  }
}

// What other rows selected is only a hint: rows that want the opposite of their neighbours, rows
// whose neighbours see nothing of their window, rows of NaN in between.
TEST(Case88, HintsThatLie) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Recipe recipe;
    recipe.kind = Kind::kReal;
    recipe.weights = Weights::kMostlyNegative;
    recipe.num_queries = 48;
    recipe.num_heads = 6;
    recipe.sixteenths = 2;
    recipe.num_keys = 6000;
    recipe.topk = 60;
    recipe.seed = seed;
    Problem p = make_problem(recipe);
    const std::size_t row = 6 * 32;
    for (std::size_t r = 1; r < 48; r += 2) {
      for (std::size_t j = 0; j < row; ++j) p.q[r * row + j] = p.q[(r - 1) * row + j] ^ 0x80;
    }
    if (seed == 2) {
      for (std::int32_t r = 0; r < 48; ++r) {
        p.start.push_back(r % 3 * 1500);
        p.end.push_back(r % 3 * 1500 + 3000);
      }
    }
    if (seed == 3) {
      for (std::size_t r = 0; r < 48; r += 4) p.weights[r * 6 + 2] = std::nanf("");
    }
    expect_oracle(p);
  }
}

}  // namespace
}  // namespace dosa::oracle
