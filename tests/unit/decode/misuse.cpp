// SPDX-License-Identifier: Apache-2.0
//
// Misuse of the decode calls is refused before any work, by the argument's name, with what was
// found and what was expected; nothing is written.
#include <gtest/gtest.h>

#include <functional>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

constexpr std::int32_t kUntouched = -77;

Problem source() {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.num_queries = 2;
  recipe.num_heads = 4;
  recipe.sixteenths = 2;
  recipe.num_keys = 300;
  recipe.topk = 10;
  return make_problem(recipe);
}

/// Valid calls, to be spoilt.
struct Calls {
  Calls()
      : step({source(), source()}, {}),
        options(make_options()),
        ids(40, kUntouched),
        slots(2 * 300, 4),
        offsets(4, 9),
        k(600 * 32),
        k_scale(600),
        keys(3 * 32, 0x3f80),
        mapping{0, -1, 77} {
    step.give_witnesses(2);
    step.offsets = offsets;
    step.point();
    output.struct_size = sizeof output;
    output.indices = ids.data();
    output.indices_stride = 10;
    EXPECT_EQ(dosa_paged_workspace_bytes(&step.problem, &options, &bytes), DOSA_OK);
    workspace.resize(bytes);
    step.problem.slot_table = slots.data();
    step.problem.slot_table_stride = step.problem.slot_table_pages = 300;
    step.problem.slot_page_size = 1;
    gather.struct_size = sizeof gather;
    gather.cache = &step.pages.cache();
    gather.batch = 2;
    gather.block_table = step.pages.table().data();
    gather.block_table_stride = gather.block_table_blocks = step.pages.blocks();
    gather.cu_seq_lens = cumulative;
    gather.num_keys = 600;
    gather.k = k.data();
    gather.k_stride = 32;
    gather.k_scale = k_scale.data();
    insert.struct_size = sizeof insert;
    insert.cache = &step.pages.cache();
    insert.num_tokens = 3;
    insert.k = keys.data();
    insert.k_stride = 32;
    insert.slot_mapping = mapping;
  }

  dosa_status topk() {
    return dosa_paged_topk(&step.problem, &options, &output, workspace.data(), bytes);
  }

  Step step;
  dosa_options options;
  dosa_output output{};
  std::vector<std::int32_t> ids, slots, offsets;
  std::vector<std::uint8_t> workspace, k;
  std::vector<float> k_scale;
  std::vector<std::uint16_t> keys;
  std::int64_t mapping[3];
  std::int32_t cumulative[3] = {0, 300, 600};
  std::size_t bytes = 0;
  dosa_paged_gather_problem gather{};
  dosa_paged_insert_problem insert{};
};

struct Misuse {
  const char *name, *found, *expected;
  std::function<void(Calls&)> spoil;
  dosa_status status = DOSA_INVALID_ARGUMENT;
};

using Call = std::function<dosa_status(Calls&)>;

void expect_refused(const Misuse& misuse, const Call& call) {
  SCOPED_TRACE(std::string(misuse.name) + " " + misuse.found);
  Calls calls;
  ASSERT_EQ(call(calls), DOSA_OK) << dosa_last_error();
  std::fill(calls.ids.begin(), calls.ids.end(), kUntouched);
  std::fill(calls.k.begin(), calls.k.end(), std::uint8_t{0xee});
  const std::vector<std::uint8_t> pages = calls.step.pages.bytes();
  const std::vector<std::uint32_t> states = calls.step.witnesses;
  misuse.spoil(calls);
  EXPECT_EQ(call(calls), misuse.status);
  const std::string message = dosa_last_error();
  EXPECT_NE(message.find(misuse.name), std::string::npos) << message;
  EXPECT_NE(message.find(std::string("found ") + misuse.found), std::string::npos) << message;
  EXPECT_NE(message.find(std::string("expected ") + misuse.expected), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(pages, calls.step.pages.bytes());
  EXPECT_EQ(states, calls.step.witnesses);
  for (const auto id : calls.ids) EXPECT_EQ(id, kUntouched);
  for (const auto code : calls.k) EXPECT_EQ(code, 0xee);
}

const Call kTopk = [](Calls& c) { return c.topk(); };
const Call kGather = [](Calls& c) { return dosa_paged_gather(&c.gather); };
const Call kInsert = [](Calls& c) { return dosa_paged_insert(&c.insert); };

TEST(DecodeMisuse, Cache) {
  const std::vector<Misuse> list = {
      {"cache", "null", "a pointer",
       [](Calls& c) { c.step.problem.cache = c.gather.cache = c.insert.cache = nullptr; }},
      {"cache.struct_size", "8", "40", [](Calls& c) { c.step.pages.cache().struct_size = 8; }},
      {"cache.pages", "null", "a pointer", [](Calls& c) { c.step.pages.cache().pages = nullptr; }},
      {"cache.pages", "an address 4 n + 2", "a multiple of 4",
       [](Calls& c) { c.step.pages.cache().pages += 2; }},
      {"cache.page_size", "640", "1, 16, 32, 64 or 128",
       [](Calls& c) { c.step.pages.cache().page_size = 640; }},
      {"cache.page_size", "0", "1, 16, 32, 64 or 128",
       [](Calls& c) { c.step.pages.cache().page_size = 0; }},
      {"cache.head_dim", "24", "a multiple of 16",
       [](Calls& c) { c.step.pages.cache().head_dim = 24; }},
      {"cache.head_dim", "272", "16 to 256", [](Calls& c) { c.step.pages.cache().head_dim = 272; }},
      {"cache.num_pages", "-1", "0 to 2147483647",
       [](Calls& c) { c.step.pages.cache().num_pages = -1; }},
      {"cache.page_stride", "2300", "at least 2304",
       [](Calls& c) { c.step.pages.cache().page_stride = 2300; }},
      {"cache.page_stride", "2306", "a multiple of 4",
       [](Calls& c) { c.step.pages.cache().page_stride = 2306; }},
  };
  for (const Misuse& misuse : list) {
    for (const Call& call : {kTopk, kGather, kInsert}) expect_refused(misuse, call);
  }
}

TEST(DecodeMisuse, ShapesAndPointers) {
  const std::vector<Misuse> list = {
      {"problem.struct_size", "1", "", [](Calls& c) { c.step.problem.struct_size = 1; }},
      {"options.struct_size", "1", "", [](Calls& c) { c.options.struct_size = 1; }},
      {"batch", "-1", "0 to", [](Calls& c) { c.step.problem.batch = -1; }},
      {"next_n", "9", "1 to 8", [](Calls& c) { c.step.problem.next_n = 9; }},
      {"next_n", "0", "1 to 8", [](Calls& c) { c.step.problem.next_n = 0; }},
      {"num_heads", "129", "1 to 128", [](Calls& c) { c.step.problem.num_heads = 129; }},
      {"topk", "0", "1 to 8192", [](Calls& c) { c.step.problem.topk = 0; }},
      {"topk", "8193", "1 to 8192", [](Calls& c) { c.step.problem.topk = 8193; }},
      {"max_context", "-1", "0 to", [](Calls& c) { c.step.problem.max_context = -1; }},
      {"lengths", "2", "0 to 1", [](Calls& c) { c.step.problem.lengths = 2; }},
      {"problem.q", "null", "a pointer", [](Calls& c) { c.step.problem.q = nullptr; }},
      {"weights", "null", "a pointer", [](Calls& c) { c.step.problem.weights = nullptr; }},
      {"context_lens", "null", "a pointer",
       [](Calls& c) { c.step.problem.context_lens = nullptr; }},
      {"block_table", "null", "a pointer", [](Calls& c) { c.step.problem.block_table = nullptr; }},
      {"q_stride", "127", "at least 128", [](Calls& c) { c.step.problem.q_stride = 127; }},
      {"weights_stride", "3", "at least 4", [](Calls& c) { c.step.problem.weights_stride = 3; }},
      {"context_lens_stride", "1", "at least 2",
       [](Calls& c) { c.step.problem.context_lens_stride = 1; }},
      {"block_table_stride", "6", "at least 7",
       [](Calls& c) { c.step.problem.block_table_stride = 6; }},
      {"witness_stride", "60", "at least 64", [](Calls& c) { c.step.problem.witness_stride = 60; }},
      {"witness_stride", "66", "a multiple of 4",
       [](Calls& c) { c.step.problem.witness_stride = 66; }},
      {"witness_count", "-1", "0 to", [](Calls& c) { c.step.problem.witness_count = -1; }},
      {"indices", "null", "a pointer", [](Calls& c) { c.output.indices = nullptr; }},
      {"indices_stride", "9", "at least 10", [](Calls& c) { c.output.indices_stride = 9; }},
      {"workspace_bytes", "", "at least", [](Calls& c) { --c.bytes; }, DOSA_WORKSPACE_TOO_SMALL},
  };
  for (const Misuse& misuse : list) expect_refused(misuse, kTopk);
}

TEST(DecodeMisuse, Options) {
  const auto with = [](std::int32_t dosa_options::*field, std::int32_t value) {
    return [=](Calls& c) { c.options.*field = value; };
  };
  const std::vector<Misuse> list = {
      {"mode", "3", "auto, base or full", with(&dosa_options::mode, 3), DOSA_UNSUPPORTED},
      {"mode", "4", "auto, base or full", with(&dosa_options::mode, 4), DOSA_UNSUPPORTED},
      {"mode", "5", "0 to 4", with(&dosa_options::mode, 5)},
      {"heads", "3", "its default 0", with(&dosa_options::heads, 3), DOSA_UNSUPPORTED},
      {"retain", "1", "its default 0", with(&dosa_options::retain, 1), DOSA_UNSUPPORTED},
      {"projection", "0", "its default 1", with(&dosa_options::projection, 0), DOSA_UNSUPPORTED},
      {"allowance", "2", "its default 0", with(&dosa_options::allowance, 2), DOSA_UNSUPPORTED},
      {"aggregate", "4", "its default 0", with(&dosa_options::aggregate, 4), DOSA_UNSUPPORTED},
      {"statistics", "1", "its default 0", with(&dosa_options::statistics, 1), DOSA_UNSUPPORTED},
      {"forced_first", "-1", "0 to", with(&dosa_options::forced_first, -1)},
      {"index_form", "4", "0 to 3", with(&dosa_options::index_form, 4)},
      {"index_offset", "null", "a pointer",
       [](Calls& c) {
         c.options.index_form = DOSA_INDEX_OFFSET;
         c.step.problem.index_offset = nullptr;
       }},
      {"slot_page_size", "0", "1 to",
       [](Calls& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.step.problem.slot_page_size = 0;
       }},
      {"slot_table_stride", "299", "at least 300",
       [](Calls& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.step.problem.slot_table_stride = 299;
       }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse, kTopk);
}

// What a length reaches must have a page; what none reaches is not looked at.
TEST(DecodeMisuse, Tables) {
  const std::vector<Misuse> list = {
      {"block_table", "page -1 (request 1, block 4)", "0 to 12",
       [](Calls& c) { c.step.pages.table()[7 + 4] = -1; }},
      {"block_table", "page 13 (request 0, block 0)", "0 to 12",
       [](Calls& c) { c.step.pages.table()[0] = 13; }},
      {"block_table", "4 blocks", "at least 5 (request 0)",
       [](Calls& c) { c.step.problem.block_table_blocks = 4; }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse, kTopk);
  const std::vector<Misuse> slots = {
      {"slot_table", "page -3 (request 1, block 299)", "0 to 2147483647",
       [](Calls& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.slots[599] = -3;
       }},
      {"slot_table", "299 blocks", "at least 300",
       [](Calls& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.step.problem.slot_table_pages = 299;
       }},
  };
  for (const Misuse& misuse : slots) expect_refused(misuse, kTopk);
  Calls calls;
  calls.step.lengths = {64, 3, 0, -9};
  for (std::size_t n = 1; n < calls.step.pages.table().size(); ++n) {
    calls.step.pages.table()[n] = -1;
  }
  EXPECT_EQ(calls.topk(), DOSA_OK) << dosa_last_error();
}

TEST(DecodeMisuse, GatherAndInsert) {
  const std::vector<Misuse> gathers = {
      {"batch", "-1", "0 to", [](Calls& c) { c.gather.batch = -1; }},
      {"k_stride", "31", "at least 32", [](Calls& c) { c.gather.k_stride = 31; }},
      {"cu_seq_lens", "null", "a pointer", [](Calls& c) { c.gather.cu_seq_lens = nullptr; }},
      {"problem.k", "null", "a pointer", [](Calls& c) { c.gather.k = nullptr; }},
      {"k_scale", "null", "a pointer", [](Calls& c) { c.gather.k_scale = nullptr; }},
      {"cu_seq_lens[0]", "1", "0 to 0", [](Calls& c) { c.cumulative[0] = 1; }},
      {"cu_seq_lens", "-2", "0 to 600", [](Calls& c) { c.cumulative[1] = -2; }},
      {"cu_seq_lens", "601", "300 to 600", [](Calls& c) { c.cumulative[2] = 601; }},
      {"block_table", "page -7 (request 0, block 5)", "0 to 12",
       [](Calls& c) { c.cumulative[1] = 321; }},
      {"reserved", "1", "0 to 0", [](Calls& c) { c.gather.reserved = 1; }},
  };
  for (const Misuse& misuse : gathers) expect_refused(misuse, kGather);
  const std::vector<Misuse> inserts = {
      {"num_tokens", "-1", "0 to", [](Calls& c) { c.insert.num_tokens = -1; }},
      {"problem.k", "null", "a pointer", [](Calls& c) { c.insert.k = nullptr; }},
      {"slot_mapping", "null", "a pointer", [](Calls& c) { c.insert.slot_mapping = nullptr; }},
      {"slot_mapping", "832 (token 1)", "less than 832", [](Calls& c) { c.mapping[1] = 832; }},
      {"scale_format", "2", "0 to 1", [](Calls& c) { c.insert.scale_format = 2; }},
      {"k_stride", "31", "at least 32", [](Calls& c) { c.insert.k_stride = 31; }},
  };
  for (const Misuse& misuse : inserts) expect_refused(misuse, kInsert);
}

TEST(DecodeMisuse, WitnessCalls) {
  std::size_t bytes = 99;
  EXPECT_EQ(dosa_witness_bytes(0, &bytes), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_witness_bytes(8193, &bytes), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 99U);
  EXPECT_EQ(dosa_witness_bytes(5, nullptr), DOSA_INVALID_ARGUMENT);
  std::uint32_t state[16];
  const std::int32_t id = 1;
  EXPECT_EQ(dosa_witness_set(nullptr, 8, &id, 1), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_witness_set(state, 8, nullptr, 1), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_witness_set(state, 8, &id, -1), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_witness_set(reinterpret_cast<std::uint8_t*>(state) + 1, 8, &id, 1),
            DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("multiple of 4"), std::string::npos);
}

}  // namespace
}  // namespace dosa::oracle
