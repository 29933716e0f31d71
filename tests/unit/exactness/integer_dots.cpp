// SPDX-License-Identifier: Apache-2.0
//
// Dot products as integers at the limits of their words: vectors whose products reach 2^31, low
// parts of half a unit, one huge coordinate among tiny ones. Every backend gives the oracle's bits.
#include <gtest/gtest.h>

#include <array>

#include "refine/score.hpp"
#include "screening_bench.hpp"

namespace dosa::test {
namespace {

void expect_scores(const oracle::Problem& p) {
  ScreeningBench bench(p);
  const auto count = static_cast<int>(p.num_keys);
  std::vector<float> reference(static_cast<std::size_t>(count));
  std::vector<float> fast(static_cast<std::size_t>(count));
  refine::score_keys_ref(bench.pack, bench.tile, nullptr, count, reference.data(), nullptr);
  refine::score_keys(bench.pack, bench.tile, nullptr, count, fast.data(), nullptr);
  // The bound of a plan that retains everything must dominate, so its dots did not wrap either.
  std::vector<plan::Role> roles(static_cast<std::size_t>(p.num_heads), plan::Role::kRetained);
  bench.plan_by_hand(roles);
  static_cast<void>(bench.build());
  alignas(Arena::kAlignment) std::array<float, plan::kTileKeys> computed{};
  screen::screen_tile(bench.operand, bench.tile, LowerBound(0.0F), computed.data());
  const auto computed_reference = bench.computed();
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const float expected = oracle::score(p, 0, static_cast<std::int64_t>(i));
    ASSERT_EQ(reference[i], expected) << "key " << i;
    ASSERT_EQ(fast[i], expected) << "key " << i;
    ASSERT_GE(bench.bound(i), expected) << "key " << i;
    ASSERT_EQ(computed[i], computed_reference[i]) << "key " << i;
  }
}

// Equal entries in m coordinates: 32 and 4 in 64 of them give exactly 2^31 of the finest units.
TEST(IntegerDots, ProductsNear2To31) {
  std::vector<std::vector<std::uint8_t>> heads;
  std::vector<std::vector<std::uint8_t>> keys;
  for (const int m : {16, 32, 63, 64, 65, 127, 128}) {
    for (const double x : {15.0, 16.0, 22.0, 30.0, 32.0, 60.0, 64.0, 240.0, 256.0, 448.0}) {
      std::map<int, double> values;
      std::map<int, double> eighth;
      for (int d = 0; d < m; ++d) {
        values[d] = d % 2 == 0 ? x : -x;
        eighth[d] = values[d] / 8;
      }
      heads.push_back(vector_of(values));
      keys.push_back(vector_of(eighth));
      keys.push_back(vector_of(values));
      for (auto& v : values) v.second = -v.second;
      keys.push_back(vector_of(values));
    }
  }
  for (const auto& head : heads) expect_scores(one_row({head}, {1.0F}, keys, 1.0F));
  std::vector<float> weights(heads.size());
  for (std::size_t h = 0; h < weights.size(); ++h) weights[h] = h % 3 == 0 ? 1.0F : -0.25F;
  expect_scores(one_row(heads, weights, keys, 0.5F));
}

// 0.125 is half a unit of the coarsest grid of keys (2^-2): its low part is +-64 of 2^-9.
TEST(IntegerDots, LowPartsOfHalfAUnit) {
  std::vector<std::vector<std::uint8_t>> vectors;
  for (const double small : {0.0, 0x1p-9, 3 * 0x1p-9, 0.125, 0.1171875, 0.140625, 0.25}) {
    for (const double big : {16.0, 64.0, 256.0, 448.0}) {
      for (const int m : {1, 2, 65, 100, 127}) {
        std::map<int, double> values;
        for (int d = 0; d < m; ++d) values[d] = d % 3 == 0 ? -big : big;
        vectors.push_back(vector_of(values, small));
        for (auto& v : values) v.second = 0.0;
        vectors.push_back(vector_of(values, -small));
      }
    }
  }
  vectors.resize(std::min<std::size_t>(vectors.size(), plan::kTileKeys));
  std::vector<std::vector<std::uint8_t>> heads(vectors.begin(), vectors.begin() + 100);
  std::vector<float> weights(heads.size(), 0.5F);
  expect_scores(one_row(heads, weights, vectors, 1.0F));
}

TEST(IntegerDots, AnyCodesInAnyWidth) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    oracle::Random random(seed);
    oracle::Recipe recipe;
    recipe.kind = seed % 4 == 0 ? oracle::Kind::kParallel : oracle::Kind::kCodes;
    recipe.weights = oracle::Weights::kSigned;
    recipe.scales = oracle::Scales::kPositive;
    recipe.num_queries = 1;
    recipe.num_heads = static_cast<int>(random.between(1, 128));
    recipe.sixteenths = static_cast<int>(random.between(1, 16));
    recipe.num_keys = static_cast<int>(random.between(1, 40));
    recipe.seed = seed;
    ASSERT_NO_FATAL_FAILURE(expect_scores(oracle::make_problem(recipe))) << recipe;
  }
}

}  // namespace
}  // namespace dosa::test
