// SPDX-License-Identifier: Apache-2.0
//
// Our own sizes (boundaries.hpp) with the inputs that broke others at theirs: plateaus, rising and
// falling scores, few distinct values, sums that depend on their order.
#include "boundaries.hpp"

#include "expect_rows.hpp"

namespace dosa::oracle {
namespace {

using test::Axis;
using test::Boundary;

struct Shape {
  std::int64_t queries = 2, keys = 700;
  int heads = 2, head_dim = 16, topk = test::kBoundaryTopk;

  [[nodiscard]] bool allowed() const {
    return heads >= 1 && heads <= DOSA_MAX_HEADS && head_dim >= 16 && head_dim % 16 == 0 &&
           head_dim <= DOSA_MAX_HEAD_DIM && topk >= 1 && topk <= DOSA_MAX_TOPK;
  }
};

Shape shape_at(Axis axis, std::int64_t size) {
  Shape shape;
  switch (axis) {
    case Axis::kKeys:
      shape.keys = size;
      shape.queries = 5;  // with a pilot
      break;
    case Axis::kRows:
      shape.queries = size;
      break;
    case Axis::kHeads:
      shape.heads = static_cast<int>(size);
      break;
    case Axis::kHeadDim:
      shape.head_dim = static_cast<int>(size);
      break;
    case Axis::kTopk:
      shape.topk = static_cast<int>(size);
      shape.keys = size + 300;
      break;
  }
  return shape;
}

/// A call that must be refused, naming what is wrong.
void expect_refused(const Shape& shape) {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = shape.queries;
  problem.num_keys = shape.keys;
  problem.num_heads = shape.heads;
  problem.head_dim = shape.head_dim;
  problem.topk = shape.topk;
  const dosa_options options = make_options();
  std::size_t bytes = 0;
  EXPECT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("expected"), std::string::npos);
}

/// Scores that are the keys' scales, in streams that fill buffers in different ways.
std::vector<std::vector<float>> streams(std::int64_t keys) {
  std::vector<std::vector<float>> all(5);
  Random random(static_cast<std::uint64_t>(keys));
  for (std::int64_t i = 0; i < keys; ++i) {
    const auto x = static_cast<float>(i);
    all[0].push_back(1.0F);                                     // one plateau
    all[1].push_back(1.0F + x);                                 // each better than all before
    all[2].push_back(static_cast<float>(keys) - x);             // each worse
    all[3].push_back(static_cast<float>(random.below(8)) / 8);  // the cut falls into ties
    all[4].push_back(i % 2 == 0 ? 0.0F : 1.0F + static_cast<float>(random.uniform()));
  }
  return all;
}

void expect_streams(const Shape& shape) {
  for (const std::vector<float>& values : streams(shape.keys)) {
    const Problem problem =
        dial(values, shape.queries, shape.topk, 1.0F, shape.heads, shape.head_dim);
    const std::vector<Row> expected(static_cast<std::size_t>(shape.queries),
                                    select(problem, {}, 0, values));
    ASSERT_NO_FATAL_FAILURE(expect_rows(problem, expected));
  }
}

/// Rows that differ, scores that are rounded, keys that no bound covers.
void expect_drawn(const Shape& shape) {
  for (const Kind kind : {Kind::kInt, Kind::kReal}) {
    Recipe recipe;
    recipe.kind = kind;
    recipe.weights = Weights::kMostlyNegative;
    recipe.scales = Scales::kAnything;
    recipe.windows = Windows::kCausal;
    recipe.num_queries = static_cast<int>(shape.queries);
    recipe.num_heads = shape.heads;
    recipe.sixteenths = shape.head_dim / 16;
    recipe.num_keys = static_cast<int>(shape.keys);
    recipe.topk = shape.topk;
    ASSERT_NO_FATAL_FAILURE(expect_oracle(make_problem(recipe)));
  }
}

class Boundaries : public ::testing::TestWithParam<Boundary> {};

TEST_P(Boundaries, OneLessItselfOneMoreAndTwice) {
  for (const std::int64_t size : test::sizes_around(GetParam())) {
    SCOPED_TRACE(GetParam().name + " at " + std::to_string(size));
    const Shape shape = shape_at(GetParam().axis, size);
    if (!shape.allowed()) {
      expect_refused(shape);
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_streams(shape));
    ASSERT_NO_FATAL_FAILURE(expect_drawn(shape));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Boundaries, ::testing::ValuesIn(test::boundaries()),
                         [](const auto& boundary) {
                           std::string name;
                           for (const char c : boundary.param.name) name += c == ' ' ? '_' : c;
                           return name;
                         });

/// Whether `auto` screens a row of `keys` keys: one head of 32 makes the score, so that it pays.
bool auto_screens(std::int64_t keys, int topk) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < keys; ++i) values.push_back(1.0F + static_cast<float>(i % 4099));
  return run(dial(values, 1, topk, 1.0F, 32, 16), {}, make_options()).stats.screened_rows > 0;
}

// From which length `auto` looks at a sample is private to the engine: found by halving.
TEST(Boundaries, WhereAutoBeginsToScreen) {
  for (const int topk : {test::kBoundaryTopk, 1000}) {
    std::int64_t below = topk;
    std::int64_t from = 16384;
    ASSERT_FALSE(auto_screens(below, topk));
    ASSERT_TRUE(auto_screens(from, topk));
    while (from - below > 1) {
      const std::int64_t middle = (below + from) / 2;
      (auto_screens(middle, topk) ? from : below) = middle;
    }
    RecordProperty("screened_from_K" + std::to_string(topk), std::to_string(from));
    for (const std::int64_t keys : {from - 1, from, from + 1, 2 * from}) {
      Shape shape;
      shape.keys = keys;
      shape.queries = engine::kPilotRows + 1;
      shape.heads = 20;
      shape.topk = topk;
      ASSERT_NO_FATAL_FAILURE(expect_streams(shape)) << keys << " keys, K " << topk;
    }
  }
}

// Rows share a scan while the hull of their windows is at most twice the longest.
TEST(Boundaries, WindowsThatPart) {
  constexpr std::int32_t kLength = 900;
  for (const std::int32_t step : {kLength - 1, kLength, kLength + 1, 2 * kLength}) {
    for (const bool descending : {false, true}) {
      Recipe recipe;
      recipe.kind = Kind::kInt;
      recipe.weights = Weights::kSigned;
      recipe.num_queries = 9;
      recipe.num_heads = 3;
      recipe.num_keys = 8 * step + kLength;
      recipe.topk = test::kBoundaryTopk;
      Problem problem = make_problem(recipe);
      for (std::int32_t r = 0; r < 9; ++r) {
        const std::int32_t begin = (descending ? 8 - r : r) * step;
        problem.start.push_back(begin);
        problem.end.push_back(begin + kLength);
      }
      ASSERT_NO_FATAL_FAILURE(expect_oracle(problem)) << step;
    }
  }
}

// As many groups as threads, one more, and a thread without any.
TEST(Boundaries, GroupsPerThread) {
  const std::vector<float> values = streams(500)[3];
  for (const std::int64_t threads : {2, 3, 8}) {
    for (const std::int64_t rows : {threads - 1, threads, threads + 1, threads * engine::kGroupRows,
                                    threads * engine::kGroupRows + 1}) {
      const Problem problem = dial(values, rows, 50, 1.0F, 1, 16);
      const std::vector<Row> expected(static_cast<std::size_t>(rows),
                                      select(problem, {}, 0, values));
      dosa_options options = make_options();
      options.threads = static_cast<std::int32_t>(threads);
      options.mode = DOSA_MODE_DOSA;
      ASSERT_EQ(difference(problem, expected, run(problem, {}, options)), "")
          << rows << " rows on " << threads;
    }
  }
}

// Everything that a row can hold at once is full: K winners of the pilot that no sample holds, a
// sample that is all known, tiles that survive whole, low parts in every pair of coordinates.
TEST(Boundaries, EveryBufferFull) {
  constexpr int kTopk = DOSA_MAX_TOPK;
  constexpr std::int64_t kKeys = 6 * kTopk + 5;
  std::vector<float> rising;
  for (std::int64_t i = 0; i < kKeys; ++i) rising.push_back(static_cast<float>(i + 1));
  const Problem seeds = dial(rising, engine::kPilotRows + 2, kTopk, 1.0F, 2, 16);
  expect_rows(seeds, std::vector<Row>(static_cast<std::size_t>(seeds.num_queries),
                                      select(seeds, {}, 0, rising)));
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 5;
  recipe.num_heads = 9;
  recipe.sixteenths = DOSA_MAX_HEAD_DIM / 16;
  recipe.num_keys = 600;
  recipe.topk = test::kBoundaryTopk;
  Problem low = make_problem(recipe);
  const auto width = static_cast<std::size_t>(low.head_dim);
  for (std::vector<std::uint8_t>* codes : {&low.q, &low.k}) {
    for (std::size_t at = 0; at < codes->size(); ++at) {
      const bool large = at % width < width - 32;  // the rest is below the grid of the large ones
      (*codes)[at] = large ? (at % 3 == 0 ? encode_e4m3(-448) : encode_e4m3(448))
                           : static_cast<std::uint8_t>(1 + at % 7);
    }
  }
  expect_oracle(low);
  for (std::size_t at = 0; at < low.k.size(); ++at) {  // odd multiples of the finest unit
    if (at % width != 0) low.k[at] = static_cast<std::uint8_t>(1 + at % 7);
  }
  expect_oracle(low);
}

}  // namespace
}  // namespace dosa::oracle
