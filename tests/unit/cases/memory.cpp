// SPDX-License-Identifier: Apache-2.0
//
// Memory and addressing: a bounded workspace, no allocation inside a call, offsets beyond 2^31,
// closed-form answers over many rows.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "expect_rows.hpp"

// Counting allocations replaces malloc, which sanitizers do as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DOSA_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DOSA_SANITIZED 1
#endif
#endif

#if !defined(DOSA_SANITIZED) && defined(__GLIBC__)
#define DOSA_COUNT_ALLOCATIONS 1
namespace {
std::atomic<std::int64_t> allocations{0};
}
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
}
#endif

namespace dosa::oracle {
namespace {

void expect_residue(std::int64_t rows, std::int64_t keys, int topk, int mode) {
  const Problem problem = residue(rows, keys, topk);
  dosa_options options = make_options();
  options.mode = mode;
  const Outcome outcome = run(problem, {}, options);
  ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
  ASSERT_EQ(outcome.damage, "");
  for (std::int64_t r = 0; r < rows; ++r) {
    ASSERT_EQ(ids_of(outcome, r, topk), residue_ids(r, keys, topk))
        << "row " << r << " of " << rows << ", " << keys << " keys, mode " << mode;
  }
}

TEST(Case58, ClosedFormOnEveryRow) {
  const std::int64_t rows = full_or(4097, 40);
  const std::int64_t keys = full_or(262144, 32768);
  for (const std::int64_t n : {keys - 1, keys, keys + 1}) {
    for (const int mode : test_scale() > 1 ? std::vector<int>{0} : all_modes()) {
      ASSERT_NO_FATAL_FAILURE(expect_residue(rows, n, 256, mode));
    }
  }
}

TEST(Case59, FewerWinnersThanPlaces) {
  const std::int64_t rows = full_or(8192, 24);
  for (const std::int64_t n : {65535, 65536, 65537}) {
    for (const int mode : test_scale() > 1 ? std::vector<int>{0} : std::vector<int>{0, 1, 4}) {
      ASSERT_NO_FATAL_FAILURE(expect_residue(rows, n, 2048, mode));  // 512 ones, then zeros
    }
  }
}

/// Address space without memory behind it until it is touched.
template <typename T>
T* sparse(std::int64_t count) {
  void* base = mmap(nullptr, static_cast<std::size_t>(count) * sizeof(T), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<T*>(base);
}

// Every stride so large that offsets pass 2^31 and 2^32 elements: 32-bit arithmetic would wrap.
TEST(Case58, OffsetsBeyond32Bits) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.num_queries = 5;
  recipe.num_heads = 3;
  recipe.num_keys = 4500;
  recipe.topk = 20;
  const Problem p = make_problem(recipe);
  Arguments arguments(p, {});
  dosa_problem& problem = arguments.get();
  constexpr std::int64_t kRow = std::int64_t{1200} << 20;  // 4 of them pass 2^32
  constexpr std::int64_t kKey = std::int64_t{1} << 20;     // 4,500 of them pass 2^32
  auto* q = sparse<std::uint8_t>(5 * kRow);
  auto* k = sparse<std::uint8_t>(4500 * kKey);
  auto* weights = sparse<float>(5 * kRow);
  auto* ids = sparse<std::int32_t>(5 * kRow);
  auto* scores = sparse<float>(5 * kRow);
  if (q == nullptr || k == nullptr || weights == nullptr || ids == nullptr || scores == nullptr) {
    GTEST_SKIP() << "no address space for sparse arrays";
  }
  for (std::int64_t r = 0; r < 5; ++r) {
    std::copy_n(p.q.begin() + r * 48, 48, q + r * kRow);
    std::copy_n(p.weights.begin() + r * 3, 3, weights + r * kRow);
  }
  for (std::int64_t i = 0; i < 4500; ++i) std::copy_n(p.k.begin() + i * 16, 16, k + i * kKey);
  problem.q = q;
  problem.q_stride = kRow;
  problem.k = k;
  problem.k_stride = kKey;
  problem.weights = weights;
  problem.weights_stride = kRow;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids;
  output.indices_stride = kRow;
  output.scores = scores;
  output.scores_stride = kRow;
  const auto expected = top_k(p, {});
  for (const int mode : all_modes()) {
    dosa_options options = make_options();
    options.mode = mode;
    std::size_t bytes = 0;
    ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK) << dosa_last_error();
    std::vector<std::uint8_t> workspace(bytes);
    ASSERT_EQ(dosa_topk(&problem, &options, &output, workspace.data(), bytes), DOSA_OK)
        << dosa_last_error();
    for (std::int64_t r = 0; r < 5; ++r) {
      const Row& row = expected[static_cast<std::size_t>(r)];
      EXPECT_EQ(Ids(ids + r * kRow, ids + r * kRow + 20), row.ids) << "row " << r;
      for (std::size_t j = 0; j < 20; ++j) {
        EXPECT_TRUE(same(scores[r * kRow + static_cast<std::int64_t>(j)], row.scores[j]));
      }
    }
  }
  munmap(q, 5 * kRow);
  munmap(k, 4500 * kKey);
  for (void* wide :
       {static_cast<void*>(weights), static_cast<void*>(ids), static_cast<void*>(scores)}) {
    munmap(wide, 5 * kRow * 4);
  }
}

TEST(Case48, AnyWorkspaceLimitGivesTheSameIds) {
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 64;
  recipe.num_heads = 4;
  recipe.num_keys = 5000;
  recipe.topk = 1024;
  const Problem problem = make_problem(recipe);
  const auto expected = top_k(problem, {});
  for (const std::uint64_t mib : {16, 17, 64, 512}) {
    for (const int mode : all_modes()) {
      dosa_options options = make_options();
      options.workspace_limit = mib << 20;
      options.mode = mode;
      options.threads = 3;
      EXPECT_EQ(difference(problem, expected, run(problem, {}, options)), "") << describe(options);
    }
  }
}

// The workspace for 4,096 rows over 128K keys is bounded, and nearly the same for any head count.
TEST(Case52, WorkspaceDoesNotGrowWithKeysOrHeads) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::size_t most = 0;
  for (const int heads : {1, 16, 32, 64, 128}) {
    for (const std::int64_t keys : {8192, 131072, 1048576}) {
      dosa_problem problem{};
      problem.struct_size = sizeof problem;
      problem.num_queries = 4096;
      problem.num_keys = keys;
      problem.num_heads = heads;
      problem.head_dim = 128;
      problem.topk = 2048;
      dosa_options options = make_options();
      options.threads = 2;
      std::size_t bytes = 0;
      ASSERT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK);
      least = std::min(least, bytes);
      most = std::max(most, bytes);
    }
  }
  EXPECT_LE(most, std::size_t{64} << 20);
  EXPECT_LT(most - least, std::size_t{32} << 20);
}

/// Bytes that a call of 32 heads asks for; 0 where it is refused.
std::size_t workspace_of(std::int64_t queries, std::int64_t keys, std::uint64_t limit) {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = queries;
  problem.num_keys = keys;
  problem.num_heads = 32;
  problem.head_dim = 128;
  problem.topk = 2048;
  dosa_options options = make_options();
  options.threads = 8;
  options.workspace_limit = limit;
  std::size_t bytes = 0;
  return dosa_workspace_bytes(&problem, &options, &bytes) == DOSA_OK ? bytes : 0;
}

// Scores of all pairs would take 32 and 128 GiB, and 61 GiB at half a million keys.
TEST(Case47, NoBufferOfRowsTimesKeys) {
  for (const std::int64_t queries : {8192, 32768}) {
    const std::size_t bytes = workspace_of(queries, 1048576, std::uint64_t{64} << 20);
    EXPECT_GT(bytes, 0U);
    EXPECT_LE(bytes, std::size_t{64} << 20);
    EXPECT_EQ(bytes, workspace_of(queries, 4194304, std::uint64_t{64} << 20));
  }
}

TEST(Case51, NoShrinkingOfChunksIsNeeded) {
  for (const std::uint64_t mib : {16, 64, 512}) {
    for (const std::int64_t queries : {4096, 32767, 32768, 32769}) {
      const std::size_t bytes = workspace_of(queries, 500000, mib << 20);
      EXPECT_GT(bytes, 0U) << queries << " rows in " << mib << " MiB";
      EXPECT_LE(bytes, std::size_t{mib} << 20);
    }
  }
}

TEST(Case52, NothingIsAllocatedInsideACall) {
#ifndef DOSA_COUNT_ALLOCATIONS
  GTEST_SKIP() << "allocations are counted with glibc's malloc only";
#else
  Recipe recipe;
  recipe.kind = Kind::kReal;
  recipe.weights = Weights::kMostlyNegative;
  recipe.num_queries = 40;
  recipe.num_heads = 32;
  recipe.sixteenths = 8;
  recipe.num_keys = 5000;
  recipe.topk = 100;
  const Problem p = make_problem(recipe);
  const Arguments arguments(p, {});
  std::vector<std::int32_t> ids(40 * 100);
  std::vector<float> scores(40 * 100);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = 100;
  output.scores = scores.data();
  output.scores_stride = 100;
  for (const int mode : all_modes()) {
    dosa_options options = make_options();
    options.mode = mode;
    options.threads = 2;
    std::size_t bytes = 0;
    ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
    std::vector<std::uint8_t> workspace(bytes);
    std::int64_t counted = -1;
    for (int repeat = 0; repeat < 2; ++repeat) {  // the first call starts the threads
      const std::int64_t before = allocations;
      ASSERT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
      counted = allocations - before;
    }
    EXPECT_EQ(counted, 0) << "mode " << mode;
  }
#endif
}

}  // namespace
}  // namespace dosa::oracle
