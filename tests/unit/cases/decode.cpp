// SPDX-License-Identifier: Apache-2.0
//
// The entries about paged caches on the decode interface; those that tests/unit/decode covers are
// not repeated.
#include "expect_rows.hpp"
#include "unit/decode/paged.hpp"

namespace dosa::oracle {
namespace {

/// A request of `next` query tokens behind `length` keys, each seeing one key more.
Problem drawn(int next, std::int32_t length, int heads, int topk, std::uint64_t seed) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.scales = Scales::kPositive;
  recipe.num_queries = next;
  recipe.num_heads = heads;
  recipe.num_keys = length;
  recipe.topk = topk;
  recipe.seed = seed;
  Problem problem = make_problem(recipe);
  problem.start.clear();
  problem.end.clear();
  for (int t = 0; t < next; ++t) problem.end.push_back(std::max(0, length - next + 1 + t));
  return problem;
}

void expect_step(const std::vector<Problem>& requests, const Paging& paging) {
  Step step(requests, paging);
  const std::vector<Row> expected = expected_rows(requests, std::vector<Request>(requests.size()));
  Problem shape;
  shape.topk = step.problem.topk;
  for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_BASE, DOSA_MODE_FULL}) {
    dosa_options options = make_options();
    options.mode = mode;
    options.threads = 2;
    ASSERT_EQ(difference(shape, expected, step.run(options)), "") << describe(options);
  }
}

TEST(Case60, MoreRequestsThanHeads) {
  for (const auto& [heads, batches] :
       std::vector<std::pair<int, std::vector<int>>>{{64, {63, 64, 65}}, {32, {33}}}) {
    for (const int batch : batches) {
      std::vector<Problem> requests;
      for (int b = 0; b < batch; ++b) {
        requests.push_back(drawn(1, 60 + b, heads, 20, static_cast<std::uint64_t>(b)));
      }
      ASSERT_NO_FATAL_FAILURE(expect_step(requests, {})) << batch;
    }
  }
}

// The last block in part and full, pages strewn, any of the sizes that the interface has.
TEST(Case63, EveryPageSizeOfTheCache) {
  for (const int page : {1, 16, 32, 64, 128}) {
    std::vector<Problem> requests;
    for (const std::int32_t length : {1, page, 3 * page - 1, 3 * page, 3 * page + 1, 900}) {
      requests.push_back(drawn(2, std::max(2, length), 5, 40, static_cast<std::uint64_t>(length)));
    }
    Paging paging;
    paging.page_size = page;
    paging.seed = 5591;
    ASSERT_NO_FATAL_FAILURE(expect_step(requests, paging)) << page;
  }
  const std::vector<Problem> one = {drawn(1, 100, 2, 5, 1)};
  for (const int page : {0, 2, 8, 63, 65, 256, 640}) {
    Step step(one, {});
    step.pages.cache().page_size = page;
    const Outcome outcome = step.run(make_options());
    EXPECT_EQ(outcome.status, DOSA_INVALID_ARGUMENT);
    EXPECT_NE(outcome.error.find("page_size: found " + std::to_string(page)), std::string::npos)
        << outcome.error;
  }
}

TEST(Case66, AnyNumberOfDraftTokensOverPages) {
  for (int next = 1; next <= DOSA_MAX_NEXT_N; ++next) {
    std::vector<Problem> requests;
    Random random(static_cast<std::uint64_t>(next));
    for (int b = 0; b < 7; ++b) {
      const auto length = static_cast<std::int32_t>(random.between(1, 700));
      requests.push_back(drawn(next, length, 4, 64, static_cast<std::uint64_t>(b)));
    }
    ASSERT_NO_FATAL_FAILURE(expect_step(requests, {})) << next;
  }
}

TEST(Case72, EveryLengthAroundPowersOfTwoOverPages) {
  for (const std::int32_t first : {4080, 8176}) {
    const Problem whole = drawn(8, first + 40, 2, 512, 72);
    Step step({whole}, {});
    for (std::int32_t length = first; length < first + 32; length += 8) {
      Problem cut = whole;
      for (std::int32_t t = 0; t < 8; ++t) {
        cut.end[static_cast<std::size_t>(t)] = length + t;
        step.lengths[static_cast<std::size_t>(t)] = length + t;
      }
      ASSERT_EQ(difference(cut, top_k(cut, {}), step.run(make_options())), "") << length;
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
