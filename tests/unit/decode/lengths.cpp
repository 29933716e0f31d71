// SPDX-License-Identifier: Apache-2.0
//
// Lengths and tables: negative, zero and odd lengths, the causal form, page borders, empty batches,
// many requests, and nothing read that no length reaches.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

Problem counted(int next_n, int keys, int topk, int heads = 2) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = next_n;
  recipe.num_heads = heads;
  recipe.sixteenths = 1;
  recipe.num_keys = keys;
  recipe.topk = topk;
  Problem problem = make_problem(recipe);
  problem.start.clear();
  problem.end.assign(static_cast<std::size_t>(next_n), keys);
  return problem;
}

std::vector<std::int32_t> padded_range(int length, int topk) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(topk), -1);
  for (int i = 0; i < std::min(length, topk); ++i) ids[static_cast<std::size_t>(i)] = i;
  return ids;
}

// Case 41: padded draft rows have lengths below zero.
TEST(Lengths, DraftRowsBeforeTheFirstToken) {
  for (const auto& [next_n, length] : {std::pair{6, 1}, {4, 2}, {8, 0}, {8, 8}, {1, 1}}) {
    Problem problem = counted(next_n, 64, 5);
    Step step({problem}, {});
    step.problem.lengths = DOSA_LENGTHS_PER_REQUEST;
    step.problem.context_lens_stride = 1;
    step.lengths = {length};
    step.point();
    const Outcome outcome = step.run(make_options());
    ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
    for (int t = 0; t < next_n; ++t) {
      problem.end[static_cast<std::size_t>(t)] = length - (next_n - 1 - t);
    }
    EXPECT_EQ(difference(problem, expected_rows({problem}, {Request{}}), outcome), "");
    EXPECT_EQ(ids_of(outcome, 0, 5), padded_range(length - next_n + 1, 5));
  }
}

TEST(Lengths, ExtremeValuesAreClamped) {
  Problem problem = counted(4, 100, 7);
  Step step({problem}, {16});
  step.lengths = {INT32_MIN, -1, 0, INT32_MAX};
  step.give_witnesses(1);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Outcome outcome = step.run(make_options());
    ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
    problem.end = {0, 0, 0, 100};
    EXPECT_EQ(difference(problem, expected_rows({problem}, {Request{}}), outcome), "");
  }
  step.lengths.assign(4, INT32_MIN);  // nothing left to see: the state forgets
  ASSERT_EQ(step.run(make_options()).status, DOSA_OK);
  EXPECT_EQ(step.witnesses[0], 0U);
}

TEST(Lengths, NoRequestsNoTokensNoPages) {
  Step none({}, {});
  EXPECT_EQ(none.run(make_options()).status, DOSA_OK);
  none.problem.q = nullptr;
  none.problem.weights = nullptr;
  none.problem.context_lens = nullptr;
  none.problem.block_table = nullptr;
  none.pages.cache().pages = nullptr;
  none.pages.cache().num_pages = 0;
  EXPECT_EQ(none.run(make_options()).status, DOSA_OK) << dosa_last_error();
  // Case 65: all lengths 0, then all 1.
  for (const int batch : {8, 32, 33, 64, 250, 256}) {
    std::vector<Problem> requests(static_cast<std::size_t>(batch), counted(1, 1, 3));
    Step step(requests, {});
    for (const int length : {0, 1}) {
      std::fill(step.lengths.begin(), step.lengths.end(), length);
      const Outcome outcome = step.run(make_options());
      ASSERT_EQ(outcome.status, DOSA_OK);
      for (int b = 0; b < batch; ++b) EXPECT_EQ(ids_of(outcome, b, 3), padded_range(length, 3));
    }
  }
}

// Cases 19, 66, 72: every length around page, tile and K borders, any number of queries.
TEST(Lengths, EveryLengthAroundBorders) {
  const Problem problem = counted(8, 4112, 64);
  Step step({problem}, {});
  step.give_witnesses(1);
  for (const int border : {64, 128, 256, 512, 2048, 4096}) {
    for (int first = border - 8; first < border + 8; first += 8) {
      for (int t = 0; t < 8; ++t) step.lengths[static_cast<std::size_t>(t)] = first + t;
      Problem cut = problem;
      cut.end = step.lengths;
      EXPECT_EQ(difference(problem, expected_rows({cut}, {Request{}}), step.run(make_options())),
                "")
          << first;
    }
  }
}

// Case 53, 60: batches beyond heads and beyond any grid.
TEST(Lengths, ManyRequests) {
  for (const int batch : {63, 64, 65, 96, 4096, 32768}) {
    const Problem one = counted(1, 130, 2, batch < 100 ? 64 : 1);
    std::vector<Problem> requests(static_cast<std::size_t>(batch), one);
    Paging paging;
    Step step(requests, paging);
    for (std::size_t b = 0; b < requests.size(); ++b) {
      step.lengths[b] = static_cast<std::int32_t>(b % 131);
    }
    std::vector<std::vector<std::int32_t>> expected;
    for (int length = 0; length <= 130; ++length) {
      Problem cut = one;
      cut.end = {length};
      expected.push_back(top_k(cut, {})[0].ids);
    }
    dosa_options options = make_options();
    options.threads = 2;
    const Outcome outcome = step.run(options);
    ASSERT_EQ(outcome.status, DOSA_OK) << outcome.error;
    for (int b = 0; b < batch; ++b) {
      ASSERT_EQ(ids_of(outcome, b, 2), expected[static_cast<std::size_t>(b % 131)]) << b;
    }
  }
}

/// Memory that ends at a page that may not be touched.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t whole = (bytes + page - 1) / page * page;
    size_ = whole + page;
    base_ = static_cast<std::uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + whole, page, PROT_NONE);
    begin_ = base_ + whole - bytes;
  }
  ~Fenced() { munmap(base_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  [[nodiscard]] std::uint8_t* data() { return begin_; }

 private:
  std::uint8_t* base_ = nullptr;
  std::uint8_t* begin_ = nullptr;
  std::size_t size_ = 0;
};

// Cases 33, 62, 65: cache, table and lengths of exactly the size that is needed.
TEST(Lengths, NothingIsReadBehindTheArrays) {
  for (const int page_size : {1, 16, 64, 128}) {
    const Problem problem = counted(3, page_size * 3, 4);
    Paging paging;
    paging.page_size = page_size;
    paging.spare_pages = paging.spare_entries = 0;
    Step step({problem}, paging);
    Fenced pages(step.pages.bytes().size());
    Fenced table(4 * 3);
    Fenced lengths(4 * 3);
    std::copy(step.pages.bytes().begin(), step.pages.bytes().end(), pages.data());
    std::memcpy(table.data(), step.pages.table().data(), 12);
    std::memcpy(lengths.data(), step.lengths.data(), 12);
    step.pages.cache().pages = pages.data();
    step.problem.block_table = reinterpret_cast<const std::int32_t*>(table.data());
    step.problem.context_lens = reinterpret_cast<const std::int32_t*>(lengths.data());
    const Outcome outcome = step.run(make_options());
    EXPECT_EQ(difference(problem, expected_rows({problem}, {Request{}}), outcome), "");
  }
}

// Case 33: a table far narrower than max_context, as long as no length reaches behind it.
TEST(Lengths, MaxContextMayExceedTheTable) {
  const Problem problem = counted(1, 4096, 32);
  Step step({problem}, {});
  step.problem.max_context = 131072;
  EXPECT_EQ(difference(problem, expected_rows({problem}, {Request{}}), step.run(make_options())),
            "");
  step.problem.max_context = 1000;  // and cuts what exceeds it
  Problem cut = problem;
  cut.end = {1000};
  EXPECT_EQ(difference(cut, expected_rows({cut}, {Request{}}), step.run(make_options())), "");
}

// Ids in the pages of another cache.
TEST(Lengths, SlotsOfAnotherTable) {
  const Problem problem = counted(2, 300, 20);
  Step step({problem, problem}, {});
  std::vector<std::int32_t> table(2 * 310);
  for (std::size_t n = 0; n < table.size(); ++n) table[n] = static_cast<std::int32_t>(7000 - 3 * n);
  step.problem.slot_table = table.data();
  step.problem.slot_table_stride = 310;
  step.problem.slot_table_pages = 305;
  step.problem.slot_page_size = 1;
  Request form;
  form.form = IndexForm::kSlot;
  form.page_size = 1;
  form.page_table_pages = 305;
  form.one_table = true;
  Request second = form;
  form.page_table.assign(table.begin(), table.begin() + 305);
  second.page_table.assign(table.begin() + 310, table.begin() + 615);
  EXPECT_EQ(difference(problem, expected_rows({problem, problem}, {form, second}),
                       step.run(make_options(form))),
            "");
}

}  // namespace
}  // namespace dosa::oracle
