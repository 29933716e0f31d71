// SPDX-License-Identifier: Apache-2.0
//
// Misuse of dosa_merge_topk is refused before any work, by the argument's name; the workspace that
// is asked for is the least that is taken.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <bit>
#include <functional>
#include <string>

#include "merge_lists.hpp"

namespace dosa::test {
namespace {

Lists two_lists() { return {{{{1, 0}, {2, 2}}, {{3, 4}}}, {{{4, 1}}, {{5, 3}, {6, 5}}}}; }

struct Misuse {
  const char* name;
  std::function<void(dosa_candidates&, dosa_output&)> spoil;
  const char* message;
};

std::int64_t decreasing[] = {0, 2, 1, 0, 1, 2};
std::int64_t negative[] = {0, 1, 2, -1, 0, 1};

const Misuse kMisuses[] = {
    {"struct_size", [](auto& c, auto&) { c.struct_size = 3; },
     "candidates.struct_size: found 3, expected 88"},
    {"rows", [](auto& c, auto&) { c.num_rows = -1; }, "candidates.num_rows: found -1, expected 0"},
    {"lists", [](auto& c, auto&) { c.num_lists = DOSA_MAX_LISTS + 1; },
     "candidates.num_lists: found 65537, expected 0 to 65536"},
    {"width", [](auto& c, auto&) { c.width = -1; }, "candidates.width: found -1, expected 0"},
    {"topk", [](auto& c, auto&) { c.topk = 0; }, "candidates.topk: found 0, expected 1 to 8192"},
    {"order", [](auto& c, auto&) { c.order = 2; }, "candidates.order: found 2, expected 0 to 1"},
    {"threads", [](auto& c, auto&) { c.threads = -1; }, "candidates.threads: found -1, expected 0"},
    {"reserved", [](auto& c, auto&) { c.reserved = 1; }, "candidates.reserved: found 1, expected"},
    {"scores", [](auto& c, auto&) { c.scores = nullptr; }, "candidates.scores: found null"},
    {"ids", [](auto& c, auto&) { c.ids = nullptr; }, "candidates.ids: found null"},
    {"odd scores",
     [](auto& c, auto&) {
       c.scores = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(c.scores) + 1);
     },
     "candidates.scores: found an address 4 n + 1, expected a multiple of 4"},
    {"list stride", [](auto& c, auto&) { c.list_stride = 1; },
     "candidates.list_stride: found 1, expected at least 2"},
    {"row stride", [](auto& c, auto&) { c.row_stride = 0; },
     "candidates.row_stride: found 0, expected at least 2"},
    {"decreasing offsets", [](auto& c, auto&) { c.offsets = decreasing; },
     "candidates.offsets: found 1 (list 0, row 2), expected at least 2"},
    {"negative offsets", [](auto& c, auto&) { c.offsets = negative; },
     "candidates.offsets: found -1 (list 1, row 0), expected at least 0"},
    {"output size", [](auto&, auto& o) { o.struct_size = 0; }, "output.struct_size: found 0"},
    {"indices", [](auto&, auto& o) { o.indices = nullptr; }, "output.indices: found null"},
    {"indices stride", [](auto&, auto& o) { o.indices_stride = 2; },
     "output.indices_stride: found 2, expected at least 3"},
    {"scores stride", [](auto&, auto& o) { o.scores_stride = 2; },
     "output.scores_stride: found 2, expected at least 3"},
    {"stats",
     [](auto&, auto& o) {
       static dosa_stats stats;
       o.stats = &stats;
     },
     "output.stats: found a pointer, expected null"},
};

TEST(MergeMisuse, IsRefusedByName) {
  for (const Misuse& misuse : kMisuses) {
    Candidates candidates(two_lists(), 2, 3, false);
    MergeCall call(candidates.get());
    ASSERT_EQ(call.status, DOSA_OK) << dosa_last_error();
    call.answer.ids.assign(6, MergeCall::kUntouched);
    misuse.spoil(candidates.get(), call.output);
    EXPECT_EQ(dosa_merge_topk(&candidates.get(), &call.output, call.workspace.data(), call.bytes),
              DOSA_INVALID_ARGUMENT)
        << misuse.name;
    EXPECT_EQ(std::string(dosa_last_error()).find(misuse.message), 0U) << dosa_last_error();
    EXPECT_EQ(call.answer.ids, std::vector<std::int32_t>(6, MergeCall::kUntouched)) << misuse.name;
  }
  Candidates candidates(two_lists(), 2, 3, false);
  MergeCall call(candidates.get());
  EXPECT_EQ(dosa_merge_topk(nullptr, &call.output, call.workspace.data(), call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_merge_topk(&candidates.get(), nullptr, call.workspace.data(), call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_merge_topk(&candidates.get(), &call.output, nullptr, call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_merge_workspace_bytes(&candidates.get(), nullptr), DOSA_INVALID_ARGUMENT);
}

TEST(MergeMisuse, TheWorkspaceIsExact) {
  for (const int topk : {1, 2048, 8192}) {
    Candidates candidates(two_lists(), 2, topk, false);
    candidates.get().threads = 2;
    MergeCall call(candidates.get());
    ASSERT_EQ(call.status, DOSA_OK);
    EXPECT_EQ(
        dosa_merge_topk(&candidates.get(), &call.output, call.workspace.data(), call.bytes - 1),
        DOSA_WORKSPACE_TOO_SMALL);
    // Any alignment: the guard behind the last byte stays as it is.
    std::vector<std::byte> memory(call.bytes + 64, std::byte{0x5A});
    for (std::size_t shift = 0; shift < 64; shift += 21) {
      std::fill(memory.begin(), memory.end(), std::byte{0x5A});
      ASSERT_EQ(dosa_merge_topk(&candidates.get(), &call.output, memory.data() + shift, call.bytes),
                DOSA_OK);
      for (std::size_t n = 0; n < memory.size(); ++n) {
        if (n < shift || n >= shift + call.bytes) {
          ASSERT_EQ(memory[n], std::byte{0x5A});
        }
      }
    }
  }
}

/// A caller whose thread takes subnormals for zeros gets them in their order.
TEST(MergeMisuse, SubnormalScoresKeepTheirOrder) {
  const Lists lists = {{{{1e-45F, 7}, {0.0F, 1}}}, {{{3e-45F, 9}}}};
  Candidates candidates(lists, 1, 2, false);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040U);
  const MergeCall call(candidates.get());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(after & 0x8040U, 0x8040U);
  EXPECT_EQ(call.answer.ids, (std::vector<std::int32_t>{7, 9}));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(call.answer.scores[0]), 1U);
}

}  // namespace
}  // namespace dosa::test
