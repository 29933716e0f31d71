// SPDX-License-Identifier: Apache-2.0
//
// dosa_merge_topk against sorting: any lists, ties, repeats, special scores, both layouts; and on
// the parts of a context against the oracle on the whole.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "merge_draw.hpp"
#include "merge_lists.hpp"
#include "oracle/generate.hpp"
#include "oracle/random.hpp"

namespace dosa::test {
namespace {

using oracle::Random;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::uint32_t> bits(const std::vector<float>& scores) {
  std::vector<std::uint32_t> words;
  for (const float score : scores) {
    words.push_back(std::isnan(score) ? 0xFFFFFFFFU : std::bit_cast<std::uint32_t>(score));
  }
  return words;
}

/// Both layouts, both orders, one thread and three.
void expect_sorted(const Lists& lists, std::size_t rows, int topk, const std::string& what) {
  for (const int variant : {0, 1, 2, 3}) {
    const bool packed = (variant & 1) != 0;
    const int order = (variant & 2) != 0 ? DOSA_ORDER_SCORE : DOSA_ORDER_ID;
    Candidates candidates(lists, rows, topk, packed, variant == 0 ? 3 : 0);
    candidates.get().order = order;
    candidates.get().threads = packed ? 1 : 3;
    const MergeCall call(candidates.get());
    ASSERT_EQ(call.status, DOSA_OK) << dosa_last_error() << what;
    ASSERT_EQ(call.workspace[call.bytes], std::byte{0x5A});
    Answer expected;
    for (std::size_t row = 0; row < rows; ++row) {
      const Answer one = sorted_answer(lists, row, topk, order);
      expected.ids.insert(expected.ids.end(), one.ids.begin(), one.ids.end());
      expected.scores.insert(expected.scores.end(), one.scores.begin(), one.scores.end());
    }
    ASSERT_EQ(call.answer.ids, expected.ids) << what << ", variant " << variant;
    ASSERT_EQ(bits(call.answer.scores), bits(expected.scores)) << what << ", variant " << variant;
  }
}

TEST(Merge, RandomLists) {
  Random random(11);
  for (int trial = 0; trial < 150; ++trial) {
    const auto count = static_cast<std::size_t>(random.below(9));
    const auto rows = static_cast<std::size_t>(random.between(1, 4));
    const int longest = static_cast<int>(random.between(1, 60));
    const int topk = static_cast<int>(random.between(1, 80));
    const bool repeats = random.once_in(3);
    expect_sorted(draw_lists(random, count, rows, longest, repeats), rows, topk,
                  "trial " + std::to_string(trial));
  }
}

/// More records than the buffer of any K here holds, so that it is reduced many times.
TEST(Merge, LongLists) {
  Random random(12);
  for (const int topk : {1, 7, 500, 1024, 2048}) {
    for (const bool repeats : {false, true}) {
      expect_sorted(draw_lists(random, 5, 2, 5000, repeats), 2, topk,
                    "K " + std::to_string(topk) + (repeats ? ", repeats" : ""));
    }
  }
}

/// The cutoff falls into a tie that is spread over all lists: the lowest ids win.
TEST(Merge, CutoffInsideATie) {
  for (const std::size_t count : {1U, 2U, 7U, 64U}) {
    Lists lists(count, std::vector<std::vector<Entry>>(1));
    for (std::int32_t id = 0; id < 3000; ++id) {
      const float score = id % 3 == 0 ? 2.0F : 1.0F;  // 1000 above, 2000 tied
      lists[static_cast<std::size_t>(id * 7) % count][0].push_back({score, id});
    }
    expect_sorted(lists, 1, 1500, std::to_string(count) + " lists");
    expect_sorted(lists, 1, 1000, std::to_string(count) + " lists");
  }
}

/// A repeat must not push a key out: the threshold counts different keys.
TEST(Merge, RepeatsCountOnceWithTheBestScore) {
  const Lists lists = {{{{5, 1}, {4, 2}, {kNan, 3}, {-0.0F, 9}}},
                       {{{5, 1}, {5, 2}, {1, 3}, {0.0F, 9}}},
                       {{{5, 1}, {3, 4}, {kNan, 5}}}};
  for (int topk = 1; topk <= 8; ++topk) expect_sorted(lists, 1, topk, "K " + std::to_string(topk));
  Lists same(3, std::vector<std::vector<Entry>>(1));
  for (auto& list : same) {
    for (std::int32_t id = 0; id < 4000; ++id) list[0].push_back({static_cast<float>(id % 97), id});
  }
  expect_sorted(same, 1, 700, "three copies");
}

TEST(Merge, NothingToMerge) {
  expect_sorted({}, 3, 5, "no lists");
  expect_sorted(Lists(4, std::vector<std::vector<Entry>>(2)), 2, 5, "empty lists");
  expect_sorted(Lists(4), 0, 5, "no rows");
  dosa_candidates none{};
  none.struct_size = sizeof none;
  none.num_rows = 1;
  none.num_lists = 2;
  none.topk = 2;
  none.list_stride = 100;  // of arrays that are not there
  const MergeCall call(none);
  ASSERT_EQ(call.status, DOSA_OK) << dosa_last_error();
  EXPECT_EQ(call.answer.ids, (std::vector<std::int32_t>{-1, -1}));
}

/// One key of a context in one of `parts` ways to cut it.
std::size_t part_of(std::int64_t key, std::int64_t num_keys, std::size_t parts, int cut) {
  const auto index = static_cast<std::size_t>(key);
  if (cut == 0) return index * parts / static_cast<std::size_t>(num_keys);  // contiguous
  if (cut == 1) return index / 16 % parts;                                  // pages
  if (cut == 2) return index % parts;                                       // round robin
  return index < 40 ? 0 : parts - 1;                                        // most are empty
}

/// E17: the K best of each part, merged, are the oracle's answer for the whole.
TEST(Merge, PartsOfAContextGiveTheWhole) {
  oracle::Recipe recipe;
  recipe.kind = oracle::Kind::kPlateau;
  recipe.weights = oracle::Weights::kSigned;
  recipe.scales = oracle::Scales::kAnything;
  recipe.num_queries = 3;
  recipe.num_heads = 4;
  recipe.num_keys = 400;
  for (const int topk : {1, 30, 150, 500}) {
    recipe.topk = topk;
    recipe.seed = static_cast<std::uint64_t>(topk);
    const oracle::Problem whole = oracle::make_problem(recipe);
    const std::vector<oracle::Row> expected = oracle::top_k(whole, {});
    for (const std::size_t parts : {1U, 3U, 8U}) {
      for (int cut = 0; cut < 4; ++cut) {
        Lists lists(parts, std::vector<std::vector<Entry>>(3));
        for (std::size_t row = 0; row < 3; ++row) {
          const std::vector<float> scores =
              oracle::row_scores(whole, static_cast<std::int64_t>(row));
          for (std::int64_t key = 0; key < 400; ++key) {
            lists[part_of(key, 400, parts, cut)][row].push_back(
                {scores[static_cast<std::size_t>(key)], static_cast<std::int32_t>(key)});
          }
          for (auto& list : lists) {
            const Answer best = sorted_answer({{list[row]}}, 0, topk, DOSA_ORDER_ID);
            for (std::size_t n = 0; n < list[row].size() && n < best.ids.size(); ++n) {
              list[row][n] = {best.scores[n], best.ids[n]};
            }
            list[row].resize(std::min(list[row].size(), best.ids.size()));
          }
        }
        Candidates candidates(lists, 3, topk, cut % 2 == 0);
        const MergeCall call(candidates.get());
        ASSERT_EQ(call.status, DOSA_OK) << dosa_last_error();
        Answer all;
        for (const oracle::Row& row : expected) {
          all.ids.insert(all.ids.end(), row.ids.begin(), row.ids.end());
          all.scores.insert(all.scores.end(), row.scores.begin(), row.scores.end());
        }
        ASSERT_EQ(call.answer.ids, all.ids) << topk << " of " << parts << " parts, cut " << cut;
        ASSERT_EQ(bits(call.answer.scores), bits(all.scores));
      }
    }
  }
}

}  // namespace
}  // namespace dosa::test
