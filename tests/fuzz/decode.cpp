// SPDX-License-Identifier: Apache-2.0
// Decode steps with drawn pages, tables, lengths and states. Every answer is the oracle's, step
// after step with whatever the states hold by then; where a length reaches a block without a page,
// the call is refused and nothing is written.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "unit/decode/paged.hpp"

namespace {

using dosa::fuzz::Bytes;
namespace oracle = dosa::oracle;

constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

/// Requests whose `end` are the lengths that their queries see, once clamped.
struct Case {
  std::vector<oracle::Problem> requests;
  oracle::Paging paging;
  oracle::Request form;
  std::int64_t max_context = 0;
  bool per_request = false;
  std::vector<std::int32_t> lengths;  // as passed
  bool refused = false;               // some length reaches a block without a page
};

std::int64_t blocks_for(std::int64_t tokens, int page_size) {
  return (tokens + page_size - 1) / page_size;
}

/// A length of any kind but one that sees the rest of a request's last page, which is poison.
std::int64_t draw_length(Bytes& bytes, const Case& drawn, std::int64_t keys) {
  std::int64_t length = bytes.between(0, keys);
  if (bytes.once_in(4)) length = bytes.pick({kLeast, -1, 0, 1, 9, 129, 400, kMost});
  const std::int64_t room = blocks_for(keys, drawn.paging.page_size) * drawn.paging.page_size;
  return length > keys && std::min(length, drawn.max_context) <= room ? keys : length;
}

/// Draws the lengths of a request, and what its queries see.
void draw_lengths(Bytes& bytes, Case& drawn, oracle::Problem& request) {
  const std::int64_t queries = request.num_queries;
  std::int64_t longest = 0;
  request.start.clear();
  request.end.clear();
  std::int64_t length = 0;
  for (std::int64_t t = 0; t < queries; ++t) {
    if (t == 0 || !drawn.per_request) {
      length = draw_length(bytes, drawn, request.num_keys);
      drawn.lengths.push_back(static_cast<std::int32_t>(length));
    }
    const std::int64_t seen = drawn.per_request ? length - (queries - 1 - t) : length;
    const std::int64_t clamped = std::clamp<std::int64_t>(seen, 0, drawn.max_context);
    longest = std::max(longest, clamped);
    request.end.push_back(static_cast<std::int32_t>(std::min(clamped, request.num_keys)));
  }
  drawn.refused |= longest > request.num_keys;
}

Case draw_case(Bytes& bytes) {
  const auto most = bytes.pick<dosa::fuzz::Extents>(
      {{0, 5, 2, 90, 40}, {0, 9, 3, 300, 90}, {0, 34, 9, 400, 300}, {0, 3, 1, 2600, 100}});
  Case drawn;
  oracle::Recipe recipe = draw_recipe(bytes, most);
  recipe.num_queries = static_cast<int>(bytes.between(1, DOSA_MAX_NEXT_N));
  recipe.windows = oracle::Windows::kNone;
  drawn.paging.page_size = bytes.pick({64, 1, 16, 32, 128});
  drawn.paging.extra_bytes = static_cast<int>(4 * bytes.between(0, 4));
  drawn.paging.spare_pages = static_cast<int>(bytes.between(0, 3));
  drawn.paging.spare_entries = static_cast<int>(bytes.between(0, 2));
  drawn.paging.seed = bytes.byte();
  drawn.form.form = static_cast<oracle::IndexForm>(bytes.between(0, 3));
  drawn.form.order = static_cast<oracle::Order>(bytes.between(0, 1));
  drawn.form.forced_first = bytes.once_in(3) ? bytes.pick({1, 3, 70, kMost}) : 0;
  drawn.form.forced_last = bytes.once_in(3) ? bytes.pick({1, 2, 65, kMost}) : 0;
  drawn.per_request = bytes.once_in(2);
  for (std::int64_t b = bytes.between(0, 4); b > 0; --b) {
    recipe.num_keys = static_cast<int>(bytes.between(0, most.keys));
    recipe.seed = static_cast<std::uint64_t>(bytes.between(0, 0xffff));
    drawn.requests.push_back(make_problem(recipe));
    drawn.max_context = std::max(drawn.max_context, drawn.requests.back().num_keys);
  }
  if (bytes.once_in(3)) drawn.max_context = bytes.between(0, drawn.max_context + 1000);
  for (oracle::Problem& request : drawn.requests) draw_lengths(bytes, drawn, request);
  return drawn;
}

/// A table entry that names no page; harmless where no length reaches it.
void break_table(Bytes& bytes, Case& drawn, oracle::Step& step) {
  const auto b = static_cast<std::size_t>(
      bytes.between(0, static_cast<std::int64_t>(drawn.requests.size()) - 1));
  const oracle::Problem& request = drawn.requests[b];
  const std::int64_t blocks = blocks_for(request.num_keys, drawn.paging.page_size);
  if (blocks == 0) return;
  const std::int64_t block = bytes.between(0, blocks - 1);
  const auto pages = static_cast<std::int32_t>(step.pages.cache().num_pages);
  step.pages.table()[b * static_cast<std::size_t>(step.pages.blocks()) +
                     static_cast<std::size_t>(block)] = bytes.pick({-1, kLeast, kMost, pages});
  const std::int32_t longest = *std::max_element(request.end.begin(), request.end.end());
  drawn.refused |= block < blocks_for(longest, drawn.paging.page_size);
}

/// The states: none, empty ones, or any words; each request has its own, or one that does not
/// exist.
std::vector<std::int32_t> give_states(Bytes& bytes, oracle::Step& step) {
  std::vector<std::int32_t> index;
  if (bytes.once_in(4)) return index;
  const std::int64_t count = step.problem.batch + bytes.between(0, 2);
  step.give_witnesses(count);
  if (bytes.once_in(2)) {
    oracle::Random random(bytes.byte());
    for (std::uint32_t& word : step.witnesses) {
      word = static_cast<std::uint32_t>(random.once_in(5) ? random.next() : random.below(3000));
      if (random.once_in(3) && !step.lengths.empty()) {  // the border between seen and not
        word = static_cast<std::uint32_t>(random.pick(step.lengths)) - 1U +
               static_cast<std::uint32_t>(random.below(3));
      }
    }
  }
  if (bytes.once_in(2)) return index;
  oracle::Random random(bytes.byte());
  for (std::int64_t n = 0; n < count; ++n) index.push_back(static_cast<std::int32_t>(n));
  random.shuffle(index);
  index.resize(static_cast<std::size_t>(step.problem.batch));
  for (std::int32_t& state : index) {
    if (random.once_in(4)) state = random.pick(std::vector<std::int32_t>{-1, kLeast, kMost});
  }
  return index;
}

/// What the ids are written with: offsets of the rows, or the pages of another cache.
struct Tables {
  std::vector<std::int32_t> slots;
  std::int64_t pages = 0;
  int page_size = 0;  // 0: the cache's own
};

Tables give_tables(Bytes& bytes, const Case& drawn, oracle::Step& step) {
  Tables tables;
  oracle::Random random(bytes.byte());
  for (std::int64_t row = 0; row < step.problem.batch * step.problem.next_n; ++row) {
    step.offsets.push_back(static_cast<std::int32_t>(random.between(-1000000, 1000000)));
  }
  if (bytes.once_in(2)) return tables;
  tables.page_size = static_cast<int>(bytes.between(1, 70));
  std::int32_t longest = 0;
  for (const oracle::Problem& request : drawn.requests) {
    for (const std::int32_t length : request.end) longest = std::max(longest, length);
  }
  tables.pages = blocks_for(longest, tables.page_size);
  for (std::int64_t n = 0; n < step.problem.batch * tables.pages + 1; ++n) {
    tables.slots.push_back(static_cast<std::int32_t>(random.below(1 << 20)));
  }
  step.problem.slot_table = tables.slots.data();
  step.problem.slot_table_stride = step.problem.slot_table_pages = tables.pages;
  step.problem.slot_page_size = tables.page_size;
  return tables;
}

std::vector<oracle::Row> expected_rows(const Case& drawn, const oracle::Step& step,
                                       const Tables& tables) {
  std::vector<oracle::Request> forms;
  const auto queries = static_cast<std::ptrdiff_t>(step.problem.next_n);
  for (std::size_t b = 0; b < drawn.requests.size(); ++b) {
    oracle::Request form = drawn.form;
    const auto first = static_cast<std::ptrdiff_t>(b);
    form.index_offset.assign(step.offsets.begin() + first * queries,
                             step.offsets.begin() + (first + 1) * queries);
    form.one_table = true;
    form.page_size = tables.page_size == 0 ? drawn.paging.page_size : tables.page_size;
    form.page_table = step.pages.table_of(b);
    if (tables.page_size != 0) {
      form.page_table.assign(tables.slots.begin() + first * tables.pages,
                             tables.slots.begin() + (first + 1) * tables.pages + 1);
    }
    form.page_table_pages = static_cast<std::int64_t>(form.page_table.size());
    forms.push_back(form);
  }
  return oracle::expected_rows(drawn.requests, forms);
}

[[noreturn]] void fail(const Case& drawn, const dosa_options& options, const std::string& what) {
  std::fprintf(stderr, "%s\nB %zu, pages of %d, max_context %lld, %s\n", what.c_str(),
               drawn.requests.size(), drawn.paging.page_size,
               static_cast<long long>(drawn.max_context), oracle::describe(options).c_str());
  std::abort();
}

void expect_refused(const Case& drawn, oracle::Step& step, const dosa_options& options) {
  const std::vector<std::uint32_t> states = step.witnesses;
  const oracle::Outcome outcome = step.run(options);
  if (outcome.status != DOSA_INVALID_ARGUMENT) fail(drawn, options, "a missing page was accepted");
  const bool written = std::any_of(outcome.ids.begin(), outcome.ids.end(),
                                   [](std::int32_t id) { return id != oracle::Step::kNoId; });
  if (written || states != step.witnesses) fail(drawn, options, "a refused call wrote something");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  Case drawn = draw_case(bytes);
  oracle::Step step(drawn.requests, drawn.paging, static_cast<int>(bytes.between(0, 3)));
  step.problem.max_context = drawn.max_context;
  step.lengths = drawn.lengths;
  if (drawn.per_request) {
    step.problem.lengths = DOSA_LENGTHS_PER_REQUEST;
    step.problem.context_lens_stride = 1;
  }
  const std::vector<std::int32_t> index = give_states(bytes, step);
  const Tables tables = give_tables(bytes, drawn, step);
  if (!drawn.requests.empty() && bytes.once_in(4)) break_table(bytes, drawn, step);
  step.point();
  if (!index.empty()) step.problem.witness_index = index.data();

  const std::int64_t steps = bytes.between(1, 4);
  for (std::int64_t n = 0; n < steps; ++n) {
    dosa_options options = oracle::make_options(drawn.form);
    options.threads = static_cast<std::int32_t>(bytes.once_in(3) ? bytes.between(2, 4) : 1);
    options.mode = static_cast<std::int32_t>(bytes.between(DOSA_MODE_AUTO, DOSA_MODE_FULL));
    options.threshold = static_cast<std::int32_t>(bytes.between(0, 1));
    if (drawn.refused) {
      expect_refused(drawn, step, options);
      continue;
    }
    if (bytes.once_in(3)) step.pages.move(bytes.byte());
    const bool want_scores = !bytes.once_in(4);
    std::vector<oracle::Row> expected = expected_rows(drawn, step, tables);
    for (oracle::Row& row : expected) {
      if (!want_scores) row.scores.assign(row.scores.size(), oracle::Step::kNoScore);
    }
    oracle::Problem shape;
    shape.topk = step.problem.topk;
    const std::string found = oracle::difference(shape, expected, step.run(options, want_scores));
    if (!found.empty()) fail(drawn, options, found);
  }
  return 0;
}
