// SPDX-License-Identifier: Apache-2.0
//
// Ways to break a threshold that rises during the scan, each of which gives a wrong set: a key
// counted twice, a seed outside the row's window, a filter that drops ties, zeros of both signs as
// different scores. And hints that lie: what neighbouring rows selected may not matter.
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"
#include "select/records.hpp"

namespace dosa::oracle {
namespace {

constexpr std::int64_t kKeys = 6000;
constexpr int kRows = 40;  // enough for groups with a pilot whose winners seed the others

void expect_exact(const Problem& problem) {
  const auto expected = top_k(problem, {});
  for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_FULL, DOSA_MODE_SCREEN, DOSA_MODE_DOSA}) {
    for (const int threshold : {DOSA_THRESHOLD_RISING, DOSA_THRESHOLD_FIXED}) {
      dosa_options options = make_options();
      options.mode = mode;
      options.threshold = threshold;
      options.threads = 2;
      EXPECT_EQ(difference(problem, expected, run(problem, {}, options)), "") << describe(options);
    }
  }
}

/// Random small integers: many ties, order-free sums.
Problem integers(std::uint64_t seed, int topk) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.num_queries = kRows;
  recipe.num_heads = 3;
  recipe.sixteenths = 1;
  recipe.num_keys = kKeys;
  recipe.topk = topk;
  recipe.seed = seed;
  return make_problem(recipe);
}

// The winners of a row are the seeds of the next: if one were also recorded by the scan, the K-th
// record would be too high and the worst winner would be lost. Equal rows share all winners.
TEST(RisingThreshold, SeedsAreNotCountedTwice) {
  Problem p = integers(1, 40);
  const auto row = static_cast<std::size_t>(p.num_heads) * static_cast<std::size_t>(p.head_dim);
  for (std::size_t r = 1; r < kRows; ++r) {
    std::copy_n(p.q.begin(), row, p.q.begin() + static_cast<std::ptrdiff_t>(r * row));
    std::copy_n(p.weights.begin(), p.num_heads,
                p.weights.begin() + static_cast<std::ptrdiff_t>(r) * 3);
  }
  expect_exact(p);
}

// Few keys tower over the rest: a threshold from any K witnesses of which one is double would
// reject the K-th.
TEST(RisingThreshold, ExactlyKGoodKeys) {
  for (const int k : {1, 2, 31, 64}) {
    std::vector<float> values(kKeys, 0.25F);
    Random random(static_cast<std::uint64_t>(k));
    for (int i = 0; i < k; ++i)
      values[static_cast<std::size_t>(random.below(kKeys))] = 8.0F + static_cast<float>(i);
    expect_exact(dial(values, kRows, k, 1.0F, 2, 16));
  }
}

// Disjoint windows: the best keys of one row are invisible to the next, which must not take its
// threshold from them.
TEST(RisingThreshold, SeedsOutsideTheWindow) {
  Problem p = integers(2, 50);
  for (std::int64_t i = 0; i < kKeys; ++i) {
    p.k_scale[static_cast<std::size_t>(i)] = i < kKeys / 2 ? 1000.0F : 1.0F;
  }
  for (std::int32_t r = 0; r < kRows; ++r) {
    p.start.push_back(r % 2 == 0 ? 0 : kKeys / 2);
    p.end.push_back(r % 2 == 0 ? kKeys / 2 : kKeys);
  }
  expect_exact(p);
  for (std::int32_t r = 0; r < kRows; ++r) {  // sliding windows as well
    p.start[static_cast<std::size_t>(r)] = 60 * r;
    p.end[static_cast<std::size_t>(r)] = 60 * r + 4500;
  }
  expect_exact(p);
}

// Lower ids that tie with the threshold may come later than those that set it.
TEST(RisingThreshold, TiesAtTheThreshold) {
  for (const int k : {1, 50, 300}) {
    std::vector<float> values(kKeys, 1.0F);
    expect_exact(dial(values, kRows, k, 1.0F, 2, 16));
    for (std::size_t i = 0; i < kKeys; i += 97) values[i] = 2.0F;  // 62 above, the rest tied
    expect_exact(dial(values, kRows, k, 1.0F, 2, 16));
    std::fill(values.begin() + kKeys / 2, values.end(), 0.5F);
    expect_exact(dial(values, kRows, k, -1.0F, 2, 16));
  }
}

TEST(RisingThreshold, ZerosOfBothSignsAtTheThreshold) {
  Problem p = dial(std::vector<float>(kKeys, 1.0F), kRows, 300, 1.0F, 2, 16);
  Random random(4);
  for (std::size_t i = 0; i < kKeys; ++i) {
    // -e0: relu 0, and the score is +0 or -0 by the sign of the scale; some are better, many worse.
    if (random.once_in(3)) p.k[i * 16] = encode_e4m3(-1);
    p.k_scale[i] = random.once_in(100) ? 1.0F : -0.5F;
  }
  expect_exact(p);
  for (float& w : p.weights) w = -w;
  for (float& s : p.k_scale) s = -s;
  expect_exact(p);
}

TEST(RisingThreshold, FewerKeysThanKScoredSoFar) {
  expect_exact(integers(5, 8192));
  Problem p = integers(6, 700);
  for (std::int32_t r = 0; r < kRows; ++r) {
    p.start.push_back(100);
    p.end.push_back(100 + 690 + r / 4);  // lengths around K
  }
  expect_exact(p);
}

// The best keys come in every possible place: first, last, at tile borders, everywhere in a tile.
TEST(RisingThreshold, WinnersAnywhere) {
  for (const std::int64_t first : {0, 255, 256, 3000, 5744}) {
    std::vector<float> values(kKeys);
    for (std::size_t i = 0; i < kKeys; ++i) values[i] = 1.0F + static_cast<float>(i % 1000) * 1e-3F;
    for (std::int64_t i = first; i < first + 256; ++i) values[static_cast<std::size_t>(i)] += 10.0F;
    expect_exact(dial(values, kRows, 257, 1.0F, 2, 16));
  }
}

// The buffer itself: equal scores are never dropped, whatever the order in which they come.
TEST(RecordBuffer, KeepsTheKBestOfAnyStream) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const auto topk = static_cast<int>(random.between(1, 700));
    const auto burst = static_cast<int>(random.between(1, 300));
    Arena counter;
    select::RecordBuffer buffer;
    buffer.place(counter, topk, burst);
    std::vector<std::uint8_t> memory(counter.used() + Arena::kAlignment);
    Arena arena(align_workspace(memory.data()));
    buffer.place(arena, topk, burst);
    buffer.clear();
    std::vector<Record> all;
    const auto count = static_cast<std::int32_t>(random.between(0, 6000));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) ids[static_cast<std::size_t>(i)] = i;
    random.shuffle(ids);
    const std::int64_t values = random.once_in(2) ? 3 : 5000;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto value = static_cast<float>(random.below(values) - values / 2);
      const Record record = make_record(score_code(random.once_in(9) ? -value : value), ids[i]);
      all.push_back(record);
      buffer.offer(record);
      if (i % static_cast<std::size_t>(burst) == 0) buffer.reserve();
    }
    buffer.reduce();
    std::sort(all.begin(), all.end(), std::greater<>());
    all.resize(std::min<std::size_t>(all.size(), static_cast<std::size_t>(topk)));
    std::vector<Record> kept(buffer.data(), buffer.data() + buffer.count());
    std::sort(kept.begin(), kept.end(), std::greater<>());
    EXPECT_EQ(kept, all) << seed;
    if (std::ssize(all) == topk) {
      EXPECT_EQ(buffer.threshold_code(), record_code(all.back()));
    } else {
      EXPECT_EQ(buffer.threshold_code(), 0U);
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
