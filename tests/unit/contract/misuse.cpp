// SPDX-License-Identifier: Apache-2.0
//
// Misuse is refused before any work: the right status, and one line that names the argument, what
// was found and what was expected. Nothing is written.
#include <gtest/gtest.h>

#include <functional>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

/// A valid call of two rows and 300 keys, to be spoilt.
struct Call {
  Call() : arguments(source(), request()), options(make_options()), problem(arguments.get()) {
    stats.struct_size = sizeof stats;
    ids.assign(20, kUntouched);
    scores.assign(20, kUntouchedScore);
    output.struct_size = sizeof output;
    output.indices = ids.data();
    output.indices_stride = 10;
    output.scores = scores.data();
    output.scores_stride = 10;
    output.stats = &stats;
    EXPECT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK) << dosa_last_error();
    workspace.resize(bytes);
  }

  static Problem source() {
    Recipe recipe;
    recipe.kind = Kind::kInt;
    recipe.num_queries = 2;
    recipe.num_heads = 4;
    recipe.sixteenths = 2;
    recipe.num_keys = 300;
    recipe.topk = 10;
    return make_problem(recipe);
  }
  static Request request() {
    Request r;
    r.index_offset = {1, 2};
    r.page_table.assign(10, 3);
    r.page_table_pages = 5;
    r.page_size = 64;
    return r;
  }

  dosa_status run() { return dosa_topk(&problem, &options, &output, workspace.data(), bytes); }

  static constexpr std::int32_t kUntouched = -77;
  static constexpr float kUntouchedScore = -77.0F;
  Arguments arguments;
  dosa_options options;
  dosa_problem problem;
  dosa_stats stats{};
  dosa_output output{};
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
  std::vector<std::uint8_t> workspace;
  std::size_t bytes = 0;
};

struct Misuse {
  const char* name;      // of the argument, as the message must say it
  const char* found;     // what the message must say was found
  const char* expected;  // and expected
  std::function<void(Call&)> spoil;
  dosa_status status = DOSA_INVALID_ARGUMENT;
};

void expect_refused(const Misuse& misuse) {
  SCOPED_TRACE(std::string(misuse.name) + " " + misuse.found);
  Call call;
  ASSERT_EQ(call.run(), DOSA_OK) << dosa_last_error();
  EXPECT_STREQ(dosa_last_error(), "");
  std::fill(call.ids.begin(), call.ids.end(), Call::kUntouched);
  std::fill(call.scores.begin(), call.scores.end(), Call::kUntouchedScore);
  misuse.spoil(call);
  EXPECT_EQ(call.run(), misuse.status);
  const std::string message = dosa_last_error();
  EXPECT_NE(message.find(misuse.name), std::string::npos) << message;
  EXPECT_NE(message.find(std::string("found ") + misuse.found), std::string::npos) << message;
  EXPECT_NE(message.find(std::string("expected ") + misuse.expected), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const auto id : call.ids) EXPECT_EQ(id, Call::kUntouched);
  for (const auto score : call.scores) EXPECT_EQ(score, Call::kUntouchedScore);
}

TEST(Misuse, NullPointers) {
  const std::vector<Misuse> list = {
      {"q", "null", "a pointer", [](Call& c) { c.problem.q = nullptr; }},
      {"k", "null", "a pointer", [](Call& c) { c.problem.k = nullptr; }},
      {"k_scale", "null", "a pointer", [](Call& c) { c.problem.k_scale = nullptr; }},
      {"weights", "null", "a pointer", [](Call& c) { c.problem.weights = nullptr; }},
      {"indices", "null", "a pointer", [](Call& c) { c.output.indices = nullptr; }},
      {"index_offset", "null", "a pointer",
       [](Call& c) {
         c.options.index_form = DOSA_INDEX_OFFSET;
         c.problem.index_offset = nullptr;
       }},
      {"page_table", "null", "a pointer",
       [](Call& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.problem.page_table = nullptr;
       }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse);
  Call call;
  EXPECT_EQ(dosa_topk(nullptr, &call.options, &call.output, call.workspace.data(), call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("problem"), std::string::npos);
  EXPECT_EQ(dosa_topk(&call.problem, nullptr, &call.output, call.workspace.data(), call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("options"), std::string::npos);
  EXPECT_EQ(dosa_topk(&call.problem, &call.options, nullptr, call.workspace.data(), call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("output"), std::string::npos);
  EXPECT_EQ(dosa_topk(&call.problem, &call.options, &call.output, nullptr, call.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(dosa_last_error()).find("workspace"), std::string::npos);
  EXPECT_EQ(dosa_workspace_bytes(&call.problem, &call.options, nullptr), DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_options_init(nullptr, sizeof(dosa_options)), DOSA_INVALID_ARGUMENT);
}

TEST(Misuse, StructSizes) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{100000}}) {
    const std::string found = std::to_string(size);
    for (const Misuse& misuse : std::vector<Misuse>{
             {"problem", found.c_str(), "", [=](Call& c) { c.problem.struct_size = size; }},
             {"options", found.c_str(), "", [=](Call& c) { c.options.struct_size = size; }},
             {"output", found.c_str(), "", [=](Call& c) { c.output.struct_size = size; }},
             {"stats", found.c_str(), "", [=](Call& c) { c.stats.struct_size = size; }}}) {
      expect_refused(misuse);
    }
    dosa_options options{};
    EXPECT_EQ(dosa_options_init(&options, size), DOSA_INVALID_ARGUMENT);
  }
}

TEST(Misuse, ShapesOutOfRange) {
  const std::vector<Misuse> list = {
      {"num_queries", "-1", "0", [](Call& c) { c.problem.num_queries = -1; }},
      {"num_keys", "-1", "0", [](Call& c) { c.problem.num_keys = -1; }},
      {"num_keys", "2147483648", "0 to 2147483647",
       [](Call& c) { c.problem.num_keys = std::int64_t{1} << 31; }},
      {"num_heads", "0", "1 to 128", [](Call& c) { c.problem.num_heads = 0; }},
      {"num_heads", "-3", "1 to 128", [](Call& c) { c.problem.num_heads = -3; }},
      {"num_heads", "129", "1 to 128", [](Call& c) { c.problem.num_heads = 129; }},
      {"head_dim", "0", "16 to 256", [](Call& c) { c.problem.head_dim = 0; }},
      {"head_dim", "24", "a multiple of 16", [](Call& c) { c.problem.head_dim = 24; }},
      {"head_dim", "272", "16 to 256", [](Call& c) { c.problem.head_dim = 272; }},
      {"topk", "0", "1 to 8192", [](Call& c) { c.problem.topk = 0; }},
      {"topk", "-2048", "1 to 8192", [](Call& c) { c.problem.topk = -2048; }},
      {"topk", "8193", "1 to 8192", [](Call& c) { c.problem.topk = 8193; }},
      {"page_size", "0", "1",
       [](Call& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.problem.page_size = 0;
       }},
      {"page_table_pages", "4", "at least 5",
       [](Call& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.problem.page_table_pages = 4;
       }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse);
}

TEST(Misuse, StridesTooSmall) {
  const std::vector<Misuse> list = {
      {"q_stride", "127", "at least 128", [](Call& c) { c.problem.q_stride = 127; }},
      {"q_stride", "-128", "at least 128", [](Call& c) { c.problem.q_stride = -128; }},
      {"k_stride", "31", "at least 32", [](Call& c) { c.problem.k_stride = 31; }},
      {"weights_stride", "3", "at least 4", [](Call& c) { c.problem.weights_stride = 3; }},
      {"indices_stride", "9", "at least 10", [](Call& c) { c.output.indices_stride = 9; }},
      {"scores_stride", "9", "at least 10", [](Call& c) { c.output.scores_stride = 9; }},
      {"page_table_stride", "4", "0 or at least 5",
       [](Call& c) {
         c.options.index_form = DOSA_INDEX_SLOT;
         c.problem.page_table_stride = 4;
       }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse);
}

TEST(Misuse, UnknownOptions) {
  const auto set = [](std::int32_t dosa_options::*field, std::int32_t value) {
    return [field, value](Call& c) { c.options.*field = value; };
  };
  const std::vector<Misuse> list = {
      {"mode", "5", "", set(&dosa_options::mode, 5)},
      {"mode", "-1", "", set(&dosa_options::mode, -1)},
      {"threshold", "2", "", set(&dosa_options::threshold, 2)},
      {"index_form", "4", "", set(&dosa_options::index_form, 4)},
      {"order", "2", "", set(&dosa_options::order, 2)},
      {"heads", "-1", "", set(&dosa_options::heads, -1)},
      {"heads", "5", "0 to 4", set(&dosa_options::heads, 5)},  // of a problem with 4 heads
      {"heads", "1000", "", set(&dosa_options::heads, 1000)},
      {"threads", "-1", "", set(&dosa_options::threads, -1)},
      {"forced_first", "-1", "", set(&dosa_options::forced_first, -1)},
      {"forced_last", "-1", "", set(&dosa_options::forced_last, -1)},
      {"retain", "2", "", set(&dosa_options::retain, 2)},
      {"projection", "2", "", set(&dosa_options::projection, 2)},
      {"allowance", "4", "", set(&dosa_options::allowance, 4)},
      {"allowance_groups", "3", "2, 4 or 8", set(&dosa_options::allowance_groups, 3)},
      {"aggregate", "5", "", set(&dosa_options::aggregate, 5)},
      {"statistics", "3", "", set(&dosa_options::statistics, 3)},
      {"score_model", "5", "", set(&dosa_options::score_model, 5)},
      {"score_model", "2", "0 or 1", set(&dosa_options::score_model, DOSA_MODEL_SM90),
       DOSA_UNSUPPORTED},
      {"workspace_limit", "1000", "at least 16777216",
       [](Call& c) { c.options.workspace_limit = 1000; }},
  };
  for (const Misuse& misuse : list) expect_refused(misuse);
}

TEST(Misuse, WorkspaceTooSmall) {
  Call probe;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, probe.bytes - 1}) {
    const std::string found = std::to_string(bytes);
    expect_refused({"workspace", found.c_str(), "at least", [=](Call& c) { c.bytes = bytes; },
                    DOSA_WORKSPACE_TOO_SMALL});
  }
}

TEST(Misuse, ScoresAndBounds) {
  Call c;
  std::vector<float> out(600);
  EXPECT_EQ(dosa_scores(&c.problem, &c.options, 0, 3, out.data(), 300, c.workspace.data(), c.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(
      dosa_scores(&c.problem, &c.options, -1, 1, out.data(), 300, c.workspace.data(), c.bytes),
      DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_scores(&c.problem, &c.options, 1, 0, out.data(), 300, c.workspace.data(), c.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_scores(&c.problem, &c.options, 0, 2, out.data(), 299, c.workspace.data(), c.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_scores(&c.problem, &c.options, 0, 2, nullptr, 300, c.workspace.data(), c.bytes),
            DOSA_INVALID_ARGUMENT);
  EXPECT_EQ(dosa_scores(&c.problem, &c.options, 0, 2, out.data(), 300, c.workspace.data(), 10),
            DOSA_WORKSPACE_TOO_SMALL);
  dosa_certificate certificate{};
  EXPECT_EQ(
      dosa_bounds(&c.problem, &c.options, 0, &certificate, out.data(), c.workspace.data(), c.bytes),
      DOSA_INVALID_ARGUMENT);  // struct_size 0
  certificate.struct_size = sizeof certificate;
  for (const std::int64_t row : {-1, 2}) {
    EXPECT_EQ(dosa_bounds(&c.problem, &c.options, row, &certificate, out.data(), c.workspace.data(),
                          c.bytes),
              DOSA_INVALID_ARGUMENT);
  }
  EXPECT_EQ(
      dosa_bounds(&c.problem, &c.options, 1, &certificate, nullptr, c.workspace.data(), c.bytes),
      DOSA_OK);
  EXPECT_EQ(dosa_verify(&c.problem, &c.options, nullptr), DOSA_INVALID_ARGUMENT);
  dosa_verification report{};
  EXPECT_EQ(dosa_verify(&c.problem, &c.options, &report), DOSA_INVALID_ARGUMENT);
}

// Huge sizes must be refused or served by arithmetic that does not wrap.
TEST(Misuse, AbsurdSizesDoNotWrap) {
  Call c;
  std::size_t bytes = 0;
  c.problem.num_queries = std::int64_t{1} << 62;
  EXPECT_EQ(dosa_workspace_bytes(&c.problem, &c.options, &bytes), DOSA_INVALID_ARGUMENT);
  c.problem.num_queries = 1 << 20;
  c.problem.num_keys = 2147483647;
  c.problem.num_heads = 128;
  c.problem.head_dim = 256;
  c.problem.topk = 8192;
  c.problem.q_stride = 128 * 256;
  EXPECT_EQ(dosa_workspace_bytes(&c.problem, &c.options, &bytes), DOSA_OK) << dosa_last_error();
  EXPECT_LE(bytes, c.options.workspace_limit);
}

TEST(Misuse, EveryStatusHasASentence) {
  std::vector<std::string> seen;
  for (int status = DOSA_OK; status <= DOSA_INTERNAL; ++status) {
    const std::string text = dosa_status_text(static_cast<dosa_status>(status));
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), text), 0) << text;
    seen.push_back(text);
  }
  EXPECT_NE(std::string(dosa_status_text(static_cast<dosa_status>(7))), "");
  EXPECT_EQ(std::string(dosa_version()), "0.1.0");
}

}  // namespace
}  // namespace dosa::oracle
