// SPDX-License-Identifier: Apache-2.0
//
// Every allocation of the C interface and of the file reader fails once. dosa_topk has none;
// dosa_verify says that memory is missing, and works the next time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "failing_memory.hpp"
#include "io/error.hpp"
#include "io/trace.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

using test::FailAllocation;

Problem drawn() {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 6;
  recipe.num_heads = 8;
  recipe.num_keys = 4600;
  recipe.topk = 40;
  return make_problem(recipe);
}

/// The first parallel region of a process sets up the runtime of OpenMP, with allocations of its
/// own; LLVM's keeps a lock when one fails. Only ours are to fail.
void start_runtime() {
  int threads = 0;
#pragma omp parallel num_threads(1) reduction(+ : threads)
  threads += 1;
  ASSERT_EQ(threads, 1);
}

TEST(InterfaceMemory, TopkScoresAndBoundsNeedNone) {
  start_runtime();
  const Problem problem = drawn();
  const Arguments arguments(problem, {});
  const std::vector<Row> expected = top_k(problem, {});
  for (const int mode : {0, 1, 2, 3, 4}) {
    dosa_options options = make_options();
    options.mode = mode;
    options.threads = 1;  // starting threads is the runtime's business
    std::size_t bytes = 0;
    std::vector<std::int32_t> ids(6 * 40);
    std::vector<float> scores(static_cast<std::size_t>(problem.num_keys));
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids.data();
    output.indices_stride = 40;
    ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
    std::vector<std::uint8_t> workspace(bytes);
    const FailAllocation fail(0);
    EXPECT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
    EXPECT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
    EXPECT_EQ(dosa_scores(&arguments.get(), &options, 2, 3, scores.data(), problem.num_keys,
                          workspace.data(), bytes),
              DOSA_OK);
    if (mode != DOSA_MODE_BASE && mode != DOSA_MODE_FULL) {
      EXPECT_EQ(dosa_bounds(&arguments.get(), &options, 1, nullptr, scores.data(), workspace.data(),
                            bytes),
                DOSA_OK);
    }
    EXPECT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes - 1),
              DOSA_WORKSPACE_TOO_SMALL);
    EXPECT_FALSE(FailAllocation::failed()) << mode;
    for (std::size_t r = 0; r < 6; ++r) {
      const auto row = ids.begin() + static_cast<std::ptrdiff_t>(40 * r);
      EXPECT_TRUE(std::equal(row, row + 40, expected[r].ids.begin()));
    }
  }
}

TEST(InterfaceMemory, VerifySaysWhatIsMissing) {
  start_runtime();
  const Problem problem = drawn();
  const Arguments arguments(problem, {});
  dosa_options options = make_options();
  options.threads = 1;
  dosa_verification report{};
  report.struct_size = sizeof report;
  std::int64_t sites = 0;
  for (bool failed = true; failed; ++sites) {
    dosa_status status = DOSA_OK;
    {
      const FailAllocation fail(sites);
      status = dosa_verify(&arguments.get(), &options, &report);
      failed = FailAllocation::failed();
    }
    EXPECT_EQ(status, failed ? DOSA_INTERNAL : DOSA_OK) << sites;
    if (failed) {
      EXPECT_STREQ(dosa_last_error(), "memory: found none, expected enough for the call");
    }
  }
  EXPECT_GE(sites, 7);  // two answers of three arrays each, and a run without a failure
  EXPECT_EQ(report.rows_different, 0);
}

TEST(InterfaceMemory, TheReaderThrowsAndLeavesNothingBehind) {
  std::int64_t sites = 0;
  for (bool failed = true; failed; ++sites) {
    bool thrown = false;
    {
      const FailAllocation fail(sites);
      try {
        const io::Trace trace = io::Trace::open(DOSA_TEST_DATA "/code_small.safetensors");
      } catch (const std::bad_alloc&) {
        thrown = true;
      } catch (const io::Error&) {
        thrown = true;
      }
      failed = FailAllocation::failed();
    }
    EXPECT_EQ(thrown, failed) << sites;
  }
  EXPECT_GT(sites, 10);
}

}  // namespace
}  // namespace dosa::oracle
