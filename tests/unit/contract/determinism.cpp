// SPDX-License-Identifier: Apache-2.0
//
// The same bytes for every mode, thread count, workspace limit and repetition; whatever the
// caller's floating-point environment; with or without scores; and statistics that agree with the
// answer.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cfenv>
#include <mutex>
#include <thread>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

Problem trained_problem(std::int64_t queries, int keys, int topk) {
  Recipe recipe;
  recipe.kind = Kind::kTrained;
  recipe.weights = Weights::kMostlyNegative;
  recipe.scales = Scales::kPositive;
  recipe.windows = Windows::kCausal;
  recipe.num_queries = static_cast<int>(queries);
  recipe.num_heads = 32;
  recipe.sixteenths = 8;
  recipe.num_keys = keys;
  recipe.topk = topk;
  return make_problem(recipe);
}

std::string bytes_of(const Outcome& outcome) {
  std::string bytes(reinterpret_cast<const char*>(outcome.ids.data()),
                    outcome.ids.size() * sizeof(std::int32_t));
  bytes.append(reinterpret_cast<const char*>(outcome.scores.data()),
               outcome.scores.size() * sizeof(float));
  return bytes;
}

TEST(Determinism, EveryModeAndThreadCountTwentyTimes) {
  const Problem problem = trained_problem(48, 12000, 100);
  dosa_options options = make_options();
  options.mode = DOSA_MODE_BASE;
  options.threads = 1;
  const Outcome first = run(problem, {}, options);
  ASSERT_EQ(first.status, DOSA_OK) << first.error;
  const std::string expected = bytes_of(first);
  // The oracle is slow: three rows of it.
  for (const std::int64_t row : {0, 17, 47}) {
    const Row answer = select(problem, {}, row, row_scores(problem, row));
    EXPECT_EQ(ids_of(first, row, problem.topk), answer.ids);
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (const int mode : {1, 2, 3, 4, 0}) {
      // Every thread count in turn, all of them over the repetitions.
      options.mode = mode;
      options.threads = 1 + (repeat + mode) % 8;
      const Outcome outcome = run(problem, {}, options);
      EXPECT_EQ(outcome.damage, "");
      ASSERT_TRUE(bytes_of(outcome) == expected) << describe(options) << " repeat " << repeat;
    }
  }
}

TEST(Determinism, WorkspaceLimits) {
  const Problem problem = trained_problem(40, 9000, 2048);
  std::string expected;
  for (const std::uint64_t mib : {16, 64, 512}) {
    for (const int mode : {0, 1, 2, 3, 4}) {
      dosa_options options = make_options();
      options.workspace_limit = mib << 20;
      options.mode = mode;
      options.threads = 4;
      const Outcome outcome = run(problem, {}, options);
      ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
      if (expected.empty()) expected = bytes_of(outcome);
      ASSERT_TRUE(bytes_of(outcome) == expected) << describe(options);
    }
  }
}

// Rows alone, in another order, in one call or in many: each row's answer is its own.
TEST(Determinism, RowsDoNotDependOnTheirNeighbours) {
  const Problem problem = trained_problem(24, 8000, 64);
  const Outcome together = run(problem, {}, make_options());
  for (std::int64_t row = 0; row < problem.num_queries; row += 5) {
    Problem alone = problem;
    alone.num_queries = 1;
    const auto width = static_cast<std::ptrdiff_t>(problem.num_heads) * problem.head_dim;
    alone.q.assign(problem.q.begin() + row * width, problem.q.begin() + (row + 1) * width);
    alone.weights.assign(problem.weights.begin() + row * 32,
                         problem.weights.begin() + row * 32 + 32);
    alone.start = {problem.start[static_cast<std::size_t>(row)]};
    alone.end = {problem.end[static_cast<std::size_t>(row)]};
    EXPECT_EQ(run(alone, {}, make_options()).ids, ids_of(together, row, 64)) << row;
  }
}

TEST(Determinism, TwoCallsAtOnce) {
  const Problem a = trained_problem(8, 8000, 64);
  const Problem b = trained_problem(5, 6000, 300);
  const std::string alone_a = bytes_of(run(a, {}, make_options()));
  const std::string alone_b = bytes_of(run(b, {}, make_options()));
  std::string together_a;
  std::string together_b;
  std::thread other([&] { together_a = bytes_of(run(a, {}, make_options())); });
  together_b = bytes_of(run(b, {}, make_options()));
  other.join();
  EXPECT_TRUE(together_a == alone_a);
  EXPECT_TRUE(together_b == alone_b);
}

// An application may have switched on flushing of subnormals or another rounding direction; the
// answer is that of the default environment, and the caller's comes back.
TEST(Determinism, TheCallersFloatingPointEnvironment) {
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kTiny;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = 6;
  recipe.num_heads = 9;
  recipe.num_keys = 5000;
  recipe.topk = 50;
  const Problem problem = make_problem(recipe);
  const auto expected = top_k(problem, {});
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  for (const unsigned rounding : {0x0000U, 0x2000U, 0x4000U, 0x6000U}) {
    for (const int mode : {0, 1, 2, 3, 4}) {
      dosa_options options = make_options();
      options.mode = mode;
      options.threads = 2;
      _mm_setcsr((saved & ~0x6000U) | rounding | kFlush);
      const Outcome outcome = run(problem, {}, options);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(saved);
      EXPECT_EQ(after & 0xffc0U, ((saved & ~0x6000U) | rounding | kFlush) & 0xffc0U);
      EXPECT_EQ(difference(problem, expected, outcome), "") << describe(options);
    }
  }
}

TEST(Determinism, TheOptionalOutputsChangeNothing) {
  const Problem problem = trained_problem(6, 7000, 50);
  const Outcome full = run(problem, {}, make_options());
  const Arguments arguments(problem, {});
  const dosa_options options = make_options();
  std::size_t bytes = 0;
  ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
  std::vector<std::uint8_t> workspace(bytes, 0xff);
  std::vector<std::int32_t> ids(full.ids.size(), -9);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = 50;
  ASSERT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
  EXPECT_EQ(ids, full.ids);
}

struct Calls {
  std::mutex lock;
  std::vector<std::int64_t> done;
  std::int64_t total = -1;
  int inside = 0;
  bool overlapped = false;
};

TEST(Determinism, ProgressIsMonotoneAndComplete) {
  const Problem problem = trained_problem(50, 5000, 20);
  Calls calls;
  dosa_options options = make_options();
  options.threads = 4;
  options.progress_user = &calls;
  options.progress = [](void* user, std::int64_t done, std::int64_t total) {
    auto* c = static_cast<Calls*>(user);
    if (!c->lock.try_lock()) {
      c->overlapped = true;
      return;
    }
    c->done.push_back(done);
    c->total = total;
    c->lock.unlock();
  };
  ASSERT_EQ(run(problem, {}, options).status, DOSA_OK);
  EXPECT_FALSE(calls.overlapped);
  ASSERT_FALSE(calls.done.empty());
  EXPECT_TRUE(std::is_sorted(calls.done.begin(), calls.done.end()));
  EXPECT_EQ(calls.done.back(), 50);
  EXPECT_EQ(calls.total, 50);
}

TEST(Statistics, AgreeWithTheAnswer) {
  const Problem problem = trained_problem(20, 9000, 64);
  for (const int mode : {0, 1, 2, 3, 4}) {
    dosa_options options = make_options();
    options.mode = mode;
    const Outcome outcome = run(problem, {}, options);
    ASSERT_EQ(outcome.status, DOSA_OK);
    std::int64_t visible = 0;
    std::int64_t scored = 0;
    std::int64_t screened = 0;
    for (std::int64_t r = 0; r < problem.num_queries; ++r) {
      const dosa_row_stats& row = outcome.rows[static_cast<std::size_t>(r)];
      const auto first = outcome.scores.begin() + r * 64;
      EXPECT_EQ(row.visible, window(problem, r).length());
      EXPECT_EQ(row.kth_score, *std::min_element(first, first + 64)) << describe(options);
      EXPECT_LE(row.first_threshold, row.kth_score);
      EXPECT_LE(row.last_threshold, row.kth_score);
      EXPECT_LE(row.fully_scored, row.visible);
      EXPECT_LE(row.screened, row.visible);
      EXPECT_GE(row.records, 64);
      EXPECT_EQ(row.fallback, 0);
      if (mode == DOSA_MODE_BASE) {
        EXPECT_EQ(row.fully_scored, row.visible);
        EXPECT_EQ(row.screened, 0);
      }
      if (row.screened > 0) {
        EXPECT_GE(row.mean_deficit, 0.0F);
      }
      visible += row.visible;
      scored += row.fully_scored;
      screened += row.screened;
    }
    EXPECT_EQ(outcome.stats.rows, 20);
    EXPECT_EQ(outcome.stats.visible, visible);
    EXPECT_EQ(outcome.stats.fully_scored, scored);
    EXPECT_EQ(outcome.stats.screened, screened);
    EXPECT_EQ(outcome.stats.short_rows, 0);
    EXPECT_GT(outcome.stats.seconds, 0.0);
  }
}

TEST(Statistics, ShortAndFallbackRows) {
  Problem problem = trained_problem(3, 9000, 64);
  problem.end = {50, 9000, 9000};
  problem.weights[33] = std::numeric_limits<float>::quiet_NaN();  // row 1
  dosa_options options = make_options();
  options.mode = DOSA_MODE_DOSA;
  const Outcome outcome = run(problem, {}, options);
  EXPECT_EQ(difference(problem, top_k(problem, {}), outcome), "");
  EXPECT_EQ(outcome.stats.short_rows, 1);
  EXPECT_EQ(outcome.stats.fallback_rows, 1);
  EXPECT_EQ(outcome.stats.screened_rows, 1);
  EXPECT_EQ(outcome.rows[1].fallback, 1);
  EXPECT_EQ(outcome.rows[1].fully_scored, 9000);
  EXPECT_EQ(outcome.rows[2].fallback, 0);
}

TEST(Verify, FindsNothingOnGoodInput) {
  const Problem problem = trained_problem(12, 9000, 64);
  const Arguments arguments(problem, {});
  dosa_options options = make_options();
  for (const int mode : {0, 3, 4}) {
    options.mode = mode;
    dosa_verification report{};
    report.struct_size = sizeof report;
    EXPECT_EQ(dosa_verify(&arguments.get(), &options, &report), DOSA_OK) << dosa_last_error();
    EXPECT_EQ(report.rows, 12);
    EXPECT_EQ(report.rows_different, 0);
    EXPECT_EQ(report.first_different, -1);
    EXPECT_EQ(report.violations, 0);
    if (mode == DOSA_MODE_DOSA) {
      EXPECT_GT(report.rejected, 1000);
      EXPECT_GE(report.min_margin, 0.0);
      EXPECT_GE(report.witness_row, 0);
      EXPECT_GE(report.witness_bound, report.witness_score);
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
