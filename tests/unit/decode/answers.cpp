// SPDX-License-Identifier: Apache-2.0
//
// Ids and scores of decode steps equal the oracle's bit for bit: every kind of input, page size,
// number of queries, index form, order, forced tokens, thread count and state of the witnesses.
#include <gtest/gtest.h>

#include <cstdlib>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

struct Case {
  std::vector<Problem> requests;
  std::vector<Request> forms;
  Paging paging;
  dosa_options options{};
};

Recipe draw_recipe(Random& random, int next_n) {
  Recipe recipe;
  recipe.kind = static_cast<Kind>(random.below(static_cast<int>(Kind::kCount)));
  recipe.weights = static_cast<Weights>(random.below(static_cast<int>(Weights::kCount)));
  recipe.scales = static_cast<Scales>(random.below(static_cast<int>(Scales::kCount)));
  recipe.num_queries = next_n;
  recipe.num_heads = static_cast<int>(random.pick(std::vector<int>{1, 3, 8, 16, 24, 32, 64}));
  recipe.sixteenths = static_cast<int>(random.between(1, 9));
  recipe.topk = static_cast<int>(random.between(1, 300));
  recipe.nan_codes = random.once_in(6) ? 2 : 0;
  return recipe;
}

Case draw(std::uint64_t seed) {
  Random random(seed);
  Case drawn;
  const int next_n = static_cast<int>(random.between(1, 8));
  Recipe recipe = draw_recipe(random, next_n);
  drawn.paging.page_size = random.pick(std::vector<int>{1, 16, 32, 64, 128});
  drawn.paging.extra_bytes = static_cast<int>(4 * random.below(5));
  drawn.paging.seed = seed;
  Request form;
  form.form = static_cast<IndexForm>(random.below(4));
  form.order = static_cast<Order>(random.below(2));
  if (random.once_in(3)) form.forced_first = static_cast<int>(random.below(80));
  if (random.once_in(3)) form.forced_last = static_cast<int>(random.below(80));
  drawn.options = make_options(form);
  drawn.options.threads = static_cast<int>(random.between(1, 3));
  drawn.options.mode = static_cast<int>(random.below(3));
  drawn.options.threshold = static_cast<int>(random.below(2));
  for (std::int64_t b = random.below(5); b >= 0; --b) {
    recipe.num_keys = static_cast<int>(random.below(random.once_in(2) ? 300 : 1400));
    recipe.seed = random.next() % 1000;
    Problem request = make_problem(recipe);
    request.start.clear();
    request.end.clear();
    for (int t = 0; t < next_n; ++t) {
      const std::int64_t length =
          random.once_in(3) ? request.num_keys : random.between(-5, request.num_keys);
      request.end.push_back(static_cast<std::int32_t>(length));
    }
    drawn.requests.push_back(std::move(request));
    for (int t = 0; t < next_n; ++t) {
      form.index_offset.push_back(static_cast<std::int32_t>(random.between(-1000, 100000)));
    }
    drawn.forms.push_back(form);
    form.index_offset.clear();
  }
  return drawn;
}

void fill_witnesses(Step& step, Random& random) {
  if (random.once_in(3)) return;
  step.give_witnesses(step.problem.batch);
  if (random.once_in(2)) return;
  for (auto& word : step.witnesses) {
    word = static_cast<std::uint32_t>(random.once_in(5) ? random.next() : random.below(2000));
  }
  const std::size_t stride = static_cast<std::size_t>(step.problem.witness_stride) / 4;
  for (std::size_t w = 0; w < step.witnesses.size(); w += stride) {
    step.witnesses[w] = static_cast<std::uint32_t>(random.below(2000));
  }
}

void expect_right(std::uint64_t seed) {
  Case drawn = draw(seed);
  Step step(drawn.requests, drawn.paging, static_cast<int>(seed % 4));
  for (std::size_t b = 0; b < drawn.forms.size(); ++b) {
    Request& form = drawn.forms[b];
    step.offsets.insert(step.offsets.end(), form.index_offset.begin(), form.index_offset.end());
    form.page_table = step.pages.table_of(b);
    form.page_table_pages = step.pages.blocks();
    form.page_size = drawn.paging.page_size;
    form.one_table = true;
  }
  Random random(seed + 77);
  step.point();
  fill_witnesses(step, random);
  const std::vector<Row> expected = expected_rows(drawn.requests, drawn.forms);
  Problem shape;
  shape.topk = step.problem.topk;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second finds what the first remembered
    const Outcome outcome = step.run(drawn.options);
    ASSERT_EQ(difference(shape, expected, outcome), "")
        << "seed " << seed << " repeat " << repeat << " page " << drawn.paging.page_size
        << " next_n " << step.problem.next_n << " B " << step.problem.batch << " "
        << describe(drawn.options);
  }
}

TEST(Decode, EqualsTheOracle) {
  const char* scale = std::getenv("DOSA_TEST_SCALE");
  const std::uint64_t cases = 150 * (scale != nullptr ? std::strtoull(scale, nullptr, 10) : 1);
  for (std::uint64_t seed = 0; seed < cases && !HasFatalFailure(); ++seed) expect_right(seed);
}

// Long enough to be shared by the threads: several rounds, and each worker its own records.
TEST(Decode, EqualsTheOracleWhereThreadsShareARequest) {
  for (const Kind kind : {Kind::kInt, Kind::kTrained, Kind::kPlateau}) {
    Recipe recipe;
    recipe.kind = kind;
    recipe.weights = Weights::kMostlyNegative;
    recipe.scales = Scales::kAnything;
    recipe.num_queries = 2;
    recipe.num_heads = 4;
    recipe.sixteenths = 1;
    recipe.num_keys = 40000;
    recipe.topk = 70;
    std::vector<Problem> requests(2, make_problem(recipe));
    requests[0].end = {39987, 40000};
    requests[1].end = {40, 9000};
    const std::vector<Row> expected = expected_rows(requests, {Request{}, Request{}});
    Step step(requests, {});
    step.give_witnesses(2);
    for (const int threads : {1, 2, 5, 2}) {
      dosa_options options = make_options();
      options.threads = threads;
      EXPECT_EQ(difference(requests[0], expected, step.run(options)), "")
          << name(kind) << " on " << threads;
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
