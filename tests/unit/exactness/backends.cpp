// SPDX-License-Identifier: Apache-2.0
//
// The vectorised form of each step equals its scalar reference bit for bit, in all outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "oracle/harness.hpp"
#include "refine/score.hpp"
#include "screening_bench.hpp"
#include "select/records.hpp"

namespace dosa::test {
namespace {

using oracle::Random;

oracle::Problem random_problem(std::uint64_t seed) {
  Random random(seed);
  oracle::Recipe recipe;
  recipe.kind = static_cast<oracle::Kind>(random.below(static_cast<int>(oracle::Kind::kCount)));
  recipe.weights =
      static_cast<oracle::Weights>(random.below(static_cast<int>(oracle::Weights::kCount)));
  recipe.scales =
      static_cast<oracle::Scales>(random.below(static_cast<int>(oracle::Scales::kCount)));
  recipe.num_queries = 1;
  recipe.num_heads = static_cast<int>(random.between(1, 128));
  recipe.sixteenths = static_cast<int>(random.between(1, 16));
  recipe.num_keys = static_cast<int>(random.between(1, plan::kTileKeys));
  recipe.nan_codes = random.once_in(4) ? 2 : 0;
  recipe.seed = seed;
  return oracle::make_problem(recipe);
}

template <typename T>
void expect_equal(const T* a, const T* b, std::int64_t count, const char* what) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool same_nan = a[i] != a[i] && b[i] != b[i];
    ASSERT_TRUE(same_nan || std::memcmp(a + i, b + i, sizeof(T)) == 0)
        << what << "[" << i << "]: " << a[i] << " and " << b[i];
  }
}

void expect_same_tile(const plan::KeyTile& a, const plan::KeyTile& b) {
  const std::int64_t keys = a.count;
  const std::int64_t dims = a.head_dim;
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.rows, b.rows, keys * dims, "rows"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.shift, b.shift, keys, "shift"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.scale, b.scale, keys, "scale"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.norm, b.norm, keys, "norm"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.low_norm, b.low_norm, keys, "low_norm"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.factor, b.factor, keys, "factor"));
  for (int g = 0; g < a.groups; ++g) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.group_norm + g * a.capacity,
                                         b.group_norm + g * b.capacity, keys, "group_norm"));
  }
  ASSERT_NO_FATAL_FAILURE(expect_equal(a.low_begin, b.low_begin, keys + 1, "low_begin"));
  for (std::uint32_t n = 0; n < a.low_begin[keys]; ++n) {
    ASSERT_EQ(std::memcmp(a.low + n, b.low + n, sizeof(plan::LowPair)), 0) << "low " << n;
  }
  for (std::int64_t i = 0; i < keys; ++i) {
    for (std::int64_t j = 0; j < dims / 2; ++j) {
      const std::int64_t at = (i / a.lanes * (dims / 2) + j) * a.lanes + i % a.lanes;
      ASSERT_EQ(a.columns[at], b.columns[at]) << "column of key " << i << " pair " << j;
    }
  }
}

TEST(Backends, BuildTile) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const oracle::Problem p = random_problem(seed);
    const int groups = p.head_dim % 64 == 0 ? 4 : (p.head_dim % 32 == 0 ? 4 : 2);
    ScreeningBench reference(p, groups);  // builds with build_tile_ref
    ScreeningBench fast(p, groups);
    const plan::KeySource keys{p.k.data(), p.head_dim, p.k_scale.data()};
    const auto count = static_cast<int>(p.num_keys);
    plan::build_tile(keys, 0, nullptr, count, fast.tile);
    ASSERT_NO_FATAL_FAILURE(expect_same_tile(fast.tile, reference.tile)) << seed;
    // A list of keys, in any order.
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    Random random(seed);
    random.shuffle(ids);
    plan::build_tile(keys, 0, ids.data(), count, fast.tile);
    plan::build_tile_ref(keys, 0, ids.data(), count, reference.tile);
    ASSERT_NO_FATAL_FAILURE(expect_same_tile(fast.tile, reference.tile)) << seed;
  }
}

TEST(Backends, ScreenTile) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const oracle::Problem p = random_problem(seed);
    Random random(seed);
    const bool grouped = p.head_dim % 32 == 0 && random.once_in(2);
    ScreeningBench bench(p, grouped ? ScreeningBench::kGroups : 0);
    plan::CertificateOptions options;
    options.retained = static_cast<int>(random.between(1, p.num_heads));
    options.allowance = grouped ? DOSA_ALLOWANCE_GROUPED : DOSA_ALLOWANCE_BEST;
    options.groups = ScreeningBench::kGroups;
    options.aggregate = static_cast<dosa_aggregate>(random.below(5));
    bench.plan_by_rule(options);
    static_cast<void>(bench.build());
    alignas(Arena::kAlignment) std::array<float, plan::kTileKeys> fast{};
    const auto reference = bench.computed();
    // Exactly one of the bounds, so that equality is met: it survives.
    const LowerBound guarded(
        reference[static_cast<std::size_t>(random.below(std::ssize(reference)))]);
    std::array<float, plan::kTileKeys> again{};
    const auto expected = screen::screen_tile_ref(bench.operand, bench.tile, guarded, again.data());
    const auto survivors = screen::screen_tile(bench.operand, bench.tile, guarded, fast.data());
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(fast.data(), reference.data(), std::ssize(reference), "bounds"))
        << seed;
    ASSERT_EQ(survivors, expected) << seed;
  }
}

TEST(Backends, ScoreKeys) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const oracle::Problem p = random_problem(seed);
    const ScreeningBench bench(p);
    Random random(seed);
    std::vector<std::uint16_t> pick;
    for (int i = 0; i < bench.tile.count; ++i) {
      if (random.once_in(2)) pick.push_back(static_cast<std::uint16_t>(i));
    }
    for (const bool whole : {true, false}) {
      const int count = whole ? bench.tile.count : static_cast<int>(pick.size());
      const std::uint16_t* chosen = whole ? nullptr : pick.data();
      std::array<float, plan::kTileKeys> fast{};
      std::array<float, plan::kTileKeys> reference{};
      std::array<refine::ActiveHeads, plan::kTileKeys> active{};
      std::array<refine::ActiveHeads, plan::kTileKeys> active_reference{};
      refine::score_keys(bench.pack, bench.tile, chosen, count, fast.data(), active.data());
      refine::score_keys_ref(bench.pack, bench.tile, chosen, count, reference.data(),
                             active_reference.data());
      ASSERT_NO_FATAL_FAILURE(expect_equal(fast.data(), reference.data(), count, "scores")) << seed;
      for (int n = 0; n < count; ++n) {
        const auto at = static_cast<std::size_t>(n);
        const std::int64_t key = whole ? n : pick[at];
        ASSERT_TRUE(oracle::score(p, 0, key) == fast[at] || std::isnan(fast[at])) << seed;
        ASSERT_EQ(active[at].word[0], active_reference[at].word[0]) << seed;
        ASSERT_EQ(active[at].word[1], active_reference[at].word[1]) << seed;
      }
    }
  }
}

TEST(Backends, PackQuery) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const oracle::Problem p = random_problem(seed);
    const ScreeningBench fast(p);  // packs with pack_query
    ScreeningBench reference(p);
    plan::pack_query_ref(p.q.data(), p.weights.data(), reference.pack, reference.rows);
    const plan::QueryPack& a = fast.pack;
    const plan::QueryPack& b = reference.pack;
    const std::int64_t lanes = a.padded_heads;
    const std::int64_t cells = static_cast<std::int64_t>(p.num_heads) * p.head_dim;
    ASSERT_EQ(a.finite, b.finite) << seed;
    ASSERT_EQ(a.num_low, b.num_low) << seed;
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.pairs, b.pairs, lanes * p.head_dim / 2, "pairs"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.low_pairs, b.low_pairs, lanes * a.num_low, "low_pairs"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.low_column, b.low_column, a.num_low, "low_column"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.weights, b.weights, lanes, "weights"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(a.unit, b.unit, lanes, "unit"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(fast.rows.hat, reference.rows.hat, cells, "hat"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(fast.rows.low, reference.rows.low, cells, "low"));
    ASSERT_NO_FATAL_FAILURE(expect_equal(fast.rows.norm, reference.rows.norm, p.num_heads, "norm"));
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(fast.rows.hat_norm, reference.rows.hat_norm, p.num_heads, "hat_norm"));
    ASSERT_NO_FATAL_FAILURE(
        expect_equal(fast.rows.low_norm, reference.rows.low_norm, p.num_heads, "low_norm"));
  }
}

// The bound over all heads may round differently in each backend, but holds in each: what is left
// includes every key at or above the threshold, with its exact score.
TEST(Backends, RefineKeys) {
  std::int64_t dropped = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const oracle::Problem p = random_problem(seed);
    ScreeningBench bench(p);
    const plan::Envelope envelope = bench.build_all_heads();
    if (!bench.pack.finite || envelope.strength > plan::kRowStrengthLimit) continue;
    Random random(seed);
    std::vector<std::uint16_t> pick;
    for (int i = 0; i < bench.tile.count; ++i) {
      if (!random.once_in(3)) pick.push_back(static_cast<std::uint16_t>(i));
    }
    if (pick.empty()) continue;
    const float tau = bench.score(random.pick(pick));
    if (std::isnan(tau)) continue;
    for (const bool reference : {false, true}) {
      std::array<std::uint16_t, plan::kTileKeys> kept{};
      std::array<float, plan::kTileKeys> scores{};
      std::array<float, plan::kTileKeys> bounds{};
      const auto refine = reference ? refine::refine_keys_ref : refine::refine_keys;
      const int left = refine(
          bench.pack, bench.tile, bench.all_heads, screen::guarded_threshold(tau), pick.data(),
          static_cast<int>(pick.size()), kept.data(), scores.data(), bounds.data());
      int next = 0;
      for (std::size_t n = 0; n < pick.size(); ++n) {
        const float score = bench.score(pick[n]);
        const bool is_left = next < left && kept[static_cast<std::size_t>(next)] == pick[n];
        ASSERT_FALSE(screen::certified_bound(bounds[n]).value < score)
            << "seed " << seed << " key " << pick[n] << " score " << score;
        ASSERT_TRUE(is_left || !(score >= tau)) << "seed " << seed << " key " << pick[n];
        if (!is_left) {
          ++dropped;
          continue;
        }
        ASSERT_TRUE(oracle::same(scores[static_cast<std::size_t>(next)], score));
        ++next;
      }
      ASSERT_EQ(next, left);
    }
  }
  EXPECT_GT(dropped, 1000);
}

TEST(Backends, KeepGreatest) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto count = static_cast<std::size_t>(random.between(0, 5000));
    const auto keep = random.between(0, static_cast<std::int64_t>(count));
    const std::int64_t values = random.once_in(2) ? 5 : 1 << 20;  // many ties, or few
    std::vector<Record> records;
    for (std::size_t i = 0; i < count; ++i) {
      const auto score = static_cast<float>(random.below(values)) * 0.25F - 3.0F;
      records.push_back(make_record(score_code(score), static_cast<std::int32_t>(i)));
    }
    random.shuffle(records);
    auto sorted = records;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    sorted.resize(static_cast<std::size_t>(keep));
    const auto kept_by = [&](auto&& keeper) {
      auto copy = records;
      keeper(copy.data(), static_cast<int>(count), static_cast<int>(keep));
      copy.resize(static_cast<std::size_t>(keep));
      std::sort(copy.begin(), copy.end(), std::greater<>());
      return copy;
    };
    ASSERT_EQ(kept_by(select::keep_greatest), sorted) << seed;
    ASSERT_EQ(kept_by(select::keep_greatest_ref), sorted) << seed;
  }
}

}  // namespace
}  // namespace dosa::test
