// SPDX-License-Identifier: Apache-2.0
//
// Nothing past the shapes is read or written: every array ends at a page that may not be touched,
// or begins behind one.
#include <gtest/gtest.h>
#include <malloc.h>

#include "fenced.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

class ContractMemory : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BothEnds, ContractMemory, ::testing::Bool());

TEST_P(ContractMemory, NothingPastTheShapesIsTouched) {
  const bool at_end = GetParam();
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Recipe recipe;
    recipe.kind = Kind::kInt;
    recipe.weights = Weights::kSigned;
    recipe.windows = Windows::kRandom;
    recipe.num_queries = static_cast<int>(random.between(1, 12));
    recipe.num_heads = static_cast<int>(random.between(1, 70));
    recipe.sixteenths = static_cast<int>(random.between(1, 16));
    recipe.num_keys =
        static_cast<int>(random.once_in(3) ? random.between(4100, 4900) : random.between(1, 530));
    recipe.topk = static_cast<int>(random.between(1, 70));
    recipe.seed = seed;
    const Problem p = make_problem(recipe);
    Request request;
    request.form = random.once_in(2) ? IndexForm::kSlot : IndexForm::kOffset;
    request.page_size = static_cast<int>(random.between(1, 64));
    request.page_table_pages = (p.num_keys + request.page_size - 1) / request.page_size;
    request.page_table.assign(static_cast<std::size_t>(request.page_table_pages * p.num_queries),
                              5);
    request.index_offset.assign(static_cast<std::size_t>(p.num_queries), 9);
    Arguments arguments(p, request);
    dosa_problem& problem = arguments.get();
    const Fenced q = fence(p.q, at_end);
    const Fenced k = fence(p.k, at_end);
    const Fenced scale = fence(p.k_scale, at_end);
    const Fenced weights = fence(p.weights, at_end);
    const Fenced start = fence(p.start, at_end);
    const Fenced end = fence(p.end, at_end);
    const Fenced table = fence(request.page_table, at_end);
    const Fenced offset = fence(request.index_offset, at_end);
    problem.q = q.as<std::uint8_t>();
    problem.k = k.as<std::uint8_t>();
    problem.k_scale = scale.as<float>();
    problem.weights = weights.as<float>();
    problem.k_start = start.as<std::int32_t>();
    problem.k_end = end.as<std::int32_t>();
    problem.page_table = table.as<std::int32_t>();
    problem.index_offset = offset.as<std::int32_t>();
    dosa_options options = make_options(request);
    options.mode = static_cast<int>(random.below(5));
    options.allowance = static_cast<int>(random.below(4));
    options.allowance_groups = 2;
    options.aggregate = static_cast<int>(random.below(5));
    std::size_t bytes = 0;
    ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK) << dosa_last_error();
    const Fenced workspace(nullptr, bytes, at_end);
    const auto cells = static_cast<std::size_t>(p.num_queries * p.topk);
    const Fenced ids(nullptr, cells * sizeof(std::int32_t), at_end);
    const Fenced scores(nullptr, cells * sizeof(float), at_end);
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids.as<std::int32_t>();
    output.indices_stride = p.topk;
    output.scores = scores.as<float>();
    output.scores_stride = p.topk;
    ASSERT_EQ(dosa_topk(&problem, &options, &output, workspace.as<void>(), bytes), DOSA_OK)
        << dosa_last_error();
    Outcome outcome;
    outcome.ids.assign(ids.as<std::int32_t>(), ids.as<std::int32_t>() + cells);
    outcome.scores.assign(scores.as<float>(), scores.as<float>() + cells);
    ASSERT_EQ(difference(p, top_k(p, request), outcome), "") << recipe;
    const Fenced all(nullptr, static_cast<std::size_t>(p.num_keys) * sizeof(float), at_end);
    ASSERT_EQ(dosa_scores(&problem, &options, 0, 1, all.as<float>(), p.num_keys,
                          workspace.as<void>(), bytes),
              DOSA_OK);
    if (options.mode == DOSA_MODE_BASE || options.mode == DOSA_MODE_FULL) continue;
    ASSERT_EQ(
        dosa_bounds(&problem, &options, 0, nullptr, all.as<float>(), workspace.as<void>(), bytes),
        DOSA_OK);
  }
}

// The workspace depends on the shape and the options, not on the number of keys or queries beyond
// what its limit allows.
TEST(ContractMemory, WorkspaceStaysUnderItsLimit) {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  for (const std::int64_t keys : {1000, 100000, 4000000, 2147483647}) {
    for (const std::int64_t queries : {1, 64, 4096, 32768}) {
      for (const int heads : {1, 32, 128}) {
        for (const int mode : {0, 1, 2, 3, 4}) {
          problem.num_queries = queries;
          problem.num_keys = keys;
          problem.num_heads = heads;
          problem.head_dim = 128;
          problem.topk = 2048;
          dosa_options options = make_options();
          options.mode = mode;
          options.threads = 16;
          std::size_t bytes = 0;
          ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK) << dosa_last_error();
          EXPECT_GT(bytes, 0U);
          EXPECT_LE(bytes, options.workspace_limit);
        }
      }
    }
  }
}

/// Bytes of the heap in use, as far as the C library counts them; 0 where a sanitizer replaces it.
std::size_t heap_bytes() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

// 256 calls, each with more keys and rows than the one before, on one workspace: nothing is kept.
TEST(ContractMemory, GrowingCallsLeaveNothingBehind) {
  constexpr std::int64_t kCalls = 256;
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 24;
  recipe.num_heads = 4;
  recipe.num_keys = static_cast<int>(4000 + 16 * kCalls);
  recipe.topk = 40;
  const Problem p = make_problem(recipe);
  Arguments arguments(p, {});
  dosa_problem& problem = arguments.get();
  dosa_options options = make_options();
  options.threads = 2;
  std::size_t most = 0;
  ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &most), DOSA_OK);
  std::vector<std::uint8_t> workspace(most);
  std::vector<std::int32_t> ids(24 * 40);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = 40;
  std::size_t before = 0;
  for (std::int64_t call = 0; call <= kCalls; ++call) {
    problem.num_keys = 4000 + 16 * call;
    problem.num_queries = 1 + call * 23 / kCalls;
    std::size_t bytes = 0;
    ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK);
    ASSERT_LE(bytes, most);
    ASSERT_EQ(dosa_topk(&problem, &options, &output, workspace.data(), bytes), DOSA_OK);
    if (call == kCalls / 4)
      before = heap_bytes();  // until then the runtime has started its threads
  }
  EXPECT_EQ(heap_bytes(), before);
}

TEST(ContractMemory, LimitTooSmallForTheShape) {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = std::int64_t{1} << 36;
  problem.num_keys = 1000;
  problem.num_heads = 128;
  problem.head_dim = 256;
  problem.topk = 8192;
  dosa_options options = make_options();
  options.workspace_limit = std::uint64_t{16} << 20;
  std::size_t bytes = 0;
  EXPECT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("workspace_limit"), std::string::npos);
}

}  // namespace
}  // namespace dosa::oracle
