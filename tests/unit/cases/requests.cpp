// SPDX-License-Identifier: Apache-2.0
//
// Rows as requests of a serving engine bring them: draft tokens, padding, batches of any size,
// lengths that are zero, buffers used by turns. A row of one request is a row of any call.
#include <thread>

#include "expect_rows.hpp"
#include "unit/contract/fenced.hpp"

namespace dosa::oracle {
namespace {

Problem drawn(std::int64_t rows, int heads, std::int64_t keys, int topk, std::uint64_t seed = 1) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = static_cast<int>(rows);
  recipe.num_heads = heads;
  recipe.num_keys = static_cast<int>(keys);
  recipe.topk = topk;
  recipe.seed = seed;
  return make_problem(recipe);
}

/// Row `row` of a problem as a call of its own, over the keys of its window alone.
Problem alone(const Problem& all, std::int64_t row) {
  const Window visible = window(all, row);
  Problem one = all;
  const std::int64_t width = static_cast<std::int64_t>(all.num_heads) * all.head_dim;
  one.num_queries = 1;
  one.num_keys = visible.length();
  one.q.assign(all.q.begin() + row * width, all.q.begin() + (row + 1) * width);
  one.weights.assign(all.weights.begin() + row * all.num_heads,
                     all.weights.begin() + (row + 1) * all.num_heads);
  one.k.assign(all.k.begin() + visible.begin * all.head_dim,
               all.k.begin() + visible.end * all.head_dim);
  one.k_scale.assign(all.k_scale.begin() + visible.begin, all.k_scale.begin() + visible.end);
  one.start.clear();
  one.end.clear();
  return one;
}

// Two problems by turns on one workspace and on two: no state is left behind, nothing but the
// output is written (run() compares the inputs before and after).
TEST(Case12, ByTurnsAndWithInputsUntouched) {
  for (const std::int64_t rows : {1, 2, 64}) {
    const Problem first = drawn(rows, 3, 5000, 100);
    const Problem second = drawn(3, 17, 333, 40, 2);
    const std::vector<Row> answers[] = {top_k(first, {}), top_k(second, {})};
    for (int turn = 0; turn < 6; ++turn) {
      const Problem& problem = turn % 2 == 0 ? first : second;
      EXPECT_EQ(difference(problem, answers[turn % 2], run(problem, {}, make_options())), "");
    }
    std::thread other(
        [&] { EXPECT_EQ(difference(second, answers[1], run(second, {}, make_options())), ""); });
    EXPECT_EQ(difference(first, answers[0], run(first, {}, make_options())), "");
    other.join();
  }
}

// Hundreds of exact ties at the cut; several calls at once; the order as well as the set.
TEST(Case14, ConcurrentCallsAgreeOnTies) {
  for (const int ties : {2, 300, 1500}) {
    Random random(14);
    std::vector<float> values;
    for (int i = 0; i < 9000; ++i) values.push_back(i < ties ? 1.0F : i < ties + 900 ? 2.0F : 0.5F);
    random.shuffle(values);
    const Problem problem = dial(values, 6, 1024, 1.0F, 2, 16);
    for (const Order order : {Order::kById, Order::kByScore}) {
      Request request;
      request.order = order;
      const std::vector<Row> expected(6, select(problem, request, 0, values));
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<std::string> found(3);
        std::vector<std::jthread> callers;
        for (std::string& difference_of : found) {
          callers.emplace_back([&] {
            dosa_options options = make_options(request);
            options.mode = repeat;
            options.threads = 1 + repeat;
            difference_of = difference(problem, expected, run(problem, request, options));
          });
        }
        callers.clear();
        EXPECT_EQ(found, std::vector<std::string>(3)) << ties;
      }
    }
  }
}

// Query rows beyond the batch: padding that sees nothing, in any number and place.
TEST(Case43, PaddedQueryRows) {
  for (const std::int64_t real : {0, 1, 5, 8}) {
    for (const bool in_front : {false, true}) {
      Problem problem = drawn(8, 4, 3000, 2048);
      for (std::int64_t r = 0; r < 8; ++r) {
        const bool padding = in_front ? r < 8 - real : r >= real;
        problem.start.push_back(padding ? 7 : 0);
        problem.end.push_back(padding ? 7 - static_cast<std::int32_t>(r) : 2500);
      }
      expect_oracle(problem);
    }
  }
}

// Two sequences of different lengths, padded on the left; causal; a call for all rows, and one for
// each row as it would come with a cache.
TEST(Case46, LeftPaddingWithAndWithoutACache) {
  constexpr std::int32_t kLength = 3000;
  constexpr std::int32_t kRows = 40;
  for (const std::int32_t pad : {0, 1, 500, kLength - kRows}) {
    Problem problem = drawn(kRows, 4, kLength, 512, 46);
    for (std::int32_t r = 0; r < kRows; ++r) {
      problem.start.push_back(pad);
      problem.end.push_back(kLength - kRows + r + 1);
    }
    Request request;
    request.form = IndexForm::kRelative;
    const std::vector<Row> expected = top_k(problem, request);
    const Outcome together = run(problem, request, make_options(request));
    ASSERT_EQ(difference(problem, expected, together), "") << pad;
    for (std::int32_t r = 0; r < kRows; r += 13) {
      const Problem one = alone(problem, r);
      EXPECT_EQ(run(one, {}, make_options()).ids, ids_of(together, r, 512)) << pad << " row " << r;
    }
  }
}

// Scheduling data that grows with the batch: many rows, each of its own length.
TEST(Case53, AnyBatch) {
  const auto most = static_cast<std::int32_t>(full_or(32768, 4097));
  for (const std::int32_t rows : {most / 8, most - 1, most}) {
    std::vector<float> values;
    for (int i = 0; i < 400; ++i) values.push_back(static_cast<float>(i * 7919 % 401));
    Problem problem = dial(values, rows, 16, 1.0F, 1, 16);
    for (std::int32_t r = 0; r < rows; ++r) problem.end.push_back(r % 401);
    problem.start.assign(static_cast<std::size_t>(rows), 0);
    std::vector<Row> expected;
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::vector<float> visible(values.begin(), values.begin() + r % 401);
      expected.push_back(select(problem, {}, r, visible));
    }
    for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_DOSA}) {
      dosa_options options = make_options();
      options.mode = mode;
      options.threads = 3;
      ASSERT_EQ(difference(problem, expected, run(problem, {}, options)), "") << rows;
    }
  }
}

TEST(Case60, MoreRowsThanHeads) {
  for (const auto& [heads, batches] : std::vector<std::pair<int, std::vector<int>>>{
           {64, {63, 64, 65, 96}}, {32, {31, 32, 33}}, {1, {2}}}) {
    for (const int rows : batches) expect_oracle(drawn(rows, heads, 300, 20));
  }
}

// All lengths 0, then 1, in batches around multiples of 32; the arrays of lengths end at a page
// that may not be read.
TEST(Case65, AllLengthsZeroOrOne) {
  for (const std::int64_t rows : {8, 32, 33, 64, 250, 256}) {
    for (const std::int32_t length : {0, 1}) {
      Problem problem = dial(std::vector<float>(300, 1.0F), rows, 64, 1.0F, 2, 16);
      problem.start.assign(static_cast<std::size_t>(rows), 0);
      problem.end.assign(static_cast<std::size_t>(rows), length);
      Arguments arguments(problem, {});
      const Fenced start = fence(problem.start, true);
      const Fenced end = fence(problem.end, true);
      arguments.get().k_start = start.as<std::int32_t>();
      arguments.get().k_end = end.as<std::int32_t>();
      const dosa_options options = make_options();
      std::size_t bytes = 0;
      ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
      std::vector<std::uint8_t> workspace(bytes);
      Ids ids(static_cast<std::size_t>(rows) * 64, 77);
      dosa_output output{};
      output.struct_size = sizeof output;
      output.indices = ids.data();
      output.indices_stride = 64;
      ASSERT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(ids[i], length == 1 && i % 64 == 0 ? 0 : -1) << rows;
      }
    }
  }
}

// Several query tokens per request, each one key further than the one before: a batch of them is
// the same as each on its own, whatever their number.
TEST(Case66, AnyNumberOfDraftTokens) {
  for (std::int32_t next = 1; next <= 8; ++next) {
    constexpr std::int32_t kBatch = 7;
    Problem problem = drawn(static_cast<std::int64_t>(kBatch) * next, 4, 7 * 700, 64,
                            static_cast<std::uint64_t>(next));
    Random random(static_cast<std::uint64_t>(next));
    for (std::int32_t b = 0; b < kBatch; ++b) {
      const auto length = static_cast<std::int32_t>(random.between(1, 700));
      for (std::int32_t t = 0; t < next; ++t) {
        problem.start.push_back(700 * b);
        problem.end.push_back(700 * b + std::max(0, length - next + 1 + t));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_oracle(problem)) << next;
    Request request;
    request.form = IndexForm::kRelative;
    const Outcome together = run(problem, request, make_options(request));
    for (std::int64_t r = 0; r < problem.num_queries; r += 5) {
      EXPECT_EQ(run(alone(problem, r), {}, make_options()).ids, ids_of(together, r, 64));
    }
  }
}

TEST(Case72, EveryLengthAroundAPowerOfTwo) {
  for (const std::int32_t first : {4080, 8176}) {
    std::vector<float> values;
    Random random(72);
    for (std::int32_t i = 0; i < first + 33; ++i) {
      values.push_back(static_cast<float>(random.below(2000)));
    }
    Problem problem = dial(values, 33, 512, 1.0F, 2, 16);
    std::vector<Row> expected;
    for (std::int32_t r = 0; r < 33; ++r) {
      problem.start.push_back(0);
      problem.end.push_back(first + r);
    }
    for (std::int32_t r = 0; r < 33; ++r) {
      const std::vector<float> visible(values.begin(), values.begin() + first + r);
      expected.push_back(select(problem, {}, r, visible));
      if (r % 8 != 0) continue;  // and as the only row of a call
      const Problem one = alone(problem, r);
      expect_rows(one, {expected.back()});
    }
    expect_rows(problem, expected);
  }
}

}  // namespace
}  // namespace dosa::oracle
