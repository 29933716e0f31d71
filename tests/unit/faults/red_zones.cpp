// SPDX-License-Identifier: Apache-2.0
//
// With the address sanitizer, a piece of the workspace that is written to its end and one further
// is seen, although the next byte belongs to the same workspace; and behind a call its owner may
// use all of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "numeric/arena.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

#ifdef DOSA_RED_ZONES

TEST(RedZones, OneElementTooMany) {
  for (const std::size_t count : {1U, 3U, 16U, 100U}) {
    std::vector<std::uint64_t> memory(1000);
    void* const base = align_workspace(memory.data());
    const WorkspaceLoan loan(memory.data(), memory.size() * 8);
    Arena arena(base);
    auto* first = arena.take<std::uint32_t>(count);
    auto* second = arena.take<std::uint32_t>(count);
    for (std::size_t i = 0; i < count; ++i) first[i] = second[i] = 1;
    volatile std::uint32_t* behind = first + count;
    EXPECT_DEATH(*behind = 1, "use-after-poison") << count;
    volatile std::uint32_t* before = second - 1;
    EXPECT_DEATH(*before = 1, "use-after-poison") << count;
  }
}

#endif

TEST(RedZones, TheOwnerMayUseItsWorkspaceAgain) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.num_queries = 5;
  recipe.num_heads = 3;
  recipe.num_keys = 4200;
  recipe.topk = 20;
  const Problem p = make_problem(recipe);
  const Arguments arguments(p, {});
  const dosa_options options = make_options();
  std::size_t bytes = 0;
  ASSERT_EQ(dosa_workspace_bytes(&arguments.get(), &options, &bytes), DOSA_OK);
  std::vector<std::uint8_t> workspace(bytes);
  std::vector<std::int32_t> ids(5 * 20);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = 20;
  for (int repeat = 0; repeat < 2; ++repeat) {
    ASSERT_EQ(dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes), DOSA_OK);
    for (std::uint8_t& byte : workspace) byte = 0xcd;
  }
  const std::vector<Row> expected = top_k(p, {});
  for (std::size_t r = 0; r < 5; ++r) {
    const auto row = ids.begin() + static_cast<std::ptrdiff_t>(20 * r);
    EXPECT_TRUE(std::equal(row, row + 20, expected[r].ids.begin()));
  }
}

}  // namespace
}  // namespace dosa::oracle
