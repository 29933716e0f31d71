// SPDX-License-Identifier: Apache-2.0
//
// Each rounding term of the envelope (docs/numerics.md) has an input for which the bound fails
// without just that term, and holds with it. A term that no test needs would be dead weight; a
// term that is wrongly formed shows here first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numeric/bounds.hpp"
#include "oracle/harness.hpp"
#include "refine/score.hpp"
#include "screening_bench.hpp"

namespace dosa::test {
namespace {

using plan::Role;

constexpr int kHeads = 128;
constexpr float kUlp = 0x1p-24F;  // half a step above 1

std::vector<std::vector<std::uint8_t>> equal_heads(int count, const std::vector<std::uint8_t>& q) {
  return std::vector<std::vector<std::uint8_t>>(static_cast<std::size_t>(count), q);
}

// N2. In every chain one product of 1 and fifteen of just over half a step, each rounded up: the
// score is 15 half steps above the real one. All but one head lie in the allowance, which is tight.
TEST(GuardTerms, ReferenceArithmetic) {
  std::vector<float> weights(kHeads, kUlp * (1 + 0x1p-10F));
  for (std::size_t h = 8; h < 16; ++h) weights[h] = 1.0F;
  ScreeningBench bench(
      one_row(equal_heads(kHeads, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})}, 1.0F));
  std::vector<Role> roles(kHeads, Role::kProjected);
  roles[8] = Role::kRetained;
  bench.plan_by_hand(roles);
  const plan::Envelope full = bench.build();
  plan::Envelope changed = full;
  changed.reference = 0.0;
  bench.expect_needed(full, changed);
}

/// Roundings that head h of H meets on its way to the score, by the steps of the model: a count in
/// place of each number.
int roundings_of_head(int heads, int head) {
  const int padded = std::max(16, (heads + 7) / 8 * 8);
  const auto dot = [&](int h) { return h == head ? 1 : 0; };  // 0: this head has no part in it
  const auto rounded = [](int a, int b) { return std::max(a, b) == 0 ? 0 : std::max(a, b) + 1; };
  int part[4] = {};
  for (int c = 0; c < 4; ++c) {
    int chain[2] = {};
    for (int o = 0; o < 2; ++o) {
      const int first = 2 * c + o;
      chain[o] = rounded(rounded(dot(first + 8), 0), dot(first));
      for (int h = first + 16; h < padded; h += 8) chain[o] = rounded(chain[o], dot(h));
    }
    part[c] = rounded(rounded(chain[0], chain[1]), 0);
  }
  return rounded(rounded(part[0], part[1]), rounded(part[2], part[3]));
}

// N2. gamma_ref counts the worst path, and no more than it.
TEST(GuardTerms, RoundingsOfTheScore) {
  for (int heads = 1; heads <= kHeads; ++heads) {
    int longest = 0;
    for (int h = 0; h < std::max(16, heads); ++h) {
      longest = std::max(longest, roundings_of_head(heads, h));
    }
    EXPECT_EQ(plan::reference_roundings(heads), longest) << heads;
  }
}

// N5. A coordinate of 448 forces a coarse grid, on which three units round to nothing.
TEST(GuardTerms, ReconstructionOfRetainedRows) {
  ScreeningBench bench(
      one_row({vector_of({{0, 448}}, 3 * 0x1p-9)}, {1.0F}, {vector_of({{0, 0}}, 448)}, 1.0F));
  bench.plan_by_hand({Role::kRetained});
  const plan::Envelope full = bench.build();
  EXPECT_GT(bench.score(), 0.0F);
  plan::Envelope changed = full;
  changed.reconstruction = 0.0;
  bench.expect_needed(full, changed);
}

// N5. The aggregate loses its many small negative coordinates: too much would be subtracted.
TEST(GuardTerms, ReconstructionOfAggregates) {
  ScreeningBench bench(
      one_row({vector_of({{0, 448}}, -3 * 0x1p-9)}, {-1.0F}, {vector_of({{0, 0.25}}, 448)}, 1.0F));
  bench.plan_by_hand({Role::kAggregated});
  const plan::Envelope full = bench.build();
  EXPECT_EQ(bench.score(), 0.0F);
  plan::Envelope changed = full;
  changed.reconstruction = 0.0;
  bench.expect_needed(full, changed);
}

// N5. The same loss on the side of the key.
TEST(GuardTerms, LowPartOfKeys) {
  ScreeningBench bench(
      one_row({vector_of({{0, 0}}, 1)}, {1.0F}, {vector_of({{0, 448}}, 3 * 0x1p-9)}, 1.0F));
  bench.plan_by_hand({Role::kRetained});
  const plan::Envelope full = bench.build();
  EXPECT_GT(bench.score(), 0.0F);
  plan::Envelope changed = full;
  changed.low = 0.0;
  bench.expect_needed(full, changed);
}

// N8. The bound adds 127 products just under half a step, one by one, to 1 and loses them all; the
// score adds most of them to each other first.
TEST(GuardTerms, ScreeningSum) {
  std::vector<float> weights(kHeads, kUlp * (1 - 0x1p-10F));
  weights[0] = 1.0F;
  ScreeningBench bench(
      one_row(equal_heads(kHeads, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})}, 1.0F));
  bench.plan_by_hand(std::vector<Role>(kHeads, Role::kRetained));
  const plan::Envelope full = bench.build();
  plan::Envelope changed = full;
  changed.screening = 0.0;
  bench.expect_needed(full, changed);
}

// N8. The same with the 1 in the allowance, which the growth factor covers.
TEST(GuardTerms, GrowthOfTheAllowance) {
  std::vector<float> weights(kHeads, kUlp * (1 - 0x1p-10F));
  weights[0] = 1.0F;
  ScreeningBench bench(
      one_row(equal_heads(kHeads, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})}, 1.0F));
  std::vector<Role> roles(kHeads, Role::kRetained);
  roles[0] = Role::kProjected;
  bench.plan_by_hand(roles);
  const plan::Envelope full = bench.build();
  plan::Envelope changed = full;
  changed.growth = 1.0;
  bench.expect_needed(full, changed);
}

// N9. Sixteen products of just over half the least subnormal round up to it; the key scale then
// lifts the error into the normal range.
TEST(GuardTerms, UnderflowBeforeTheKeyScale) {
  const double unit = 0x1p-9;
  const std::vector<float> weights(16, 0x1p-132F + 0x1p-149F);
  ScreeningBench bench(
      one_row(equal_heads(16, vector_of({{0, unit}})), weights, {vector_of({{0, unit}})}, 0x1p60F));
  bench.plan_by_hand(std::vector<Role>(16, Role::kRetained));
  const plan::Envelope full = bench.build();
  EXPECT_EQ(bench.score(), 0x1p-85F);  // 16 * 2^-149 * 2^60
  plan::Envelope changed = full;
  changed.floor = 0.0;
  bench.expect_needed(full, changed);
}

// N6. A folded weight that falls between two subnormal numbers must go up.
TEST(GuardTerms, CoefficientRounding) {
  ScreeningBench bench(one_row({vector_of({{0, 60}}), vector_of({{0, 15}})}, {0x1p-149F, 0x1p-149F},
                               {vector_of({{0, 448}})}, 0x1p40F));
  bench.plan_by_hand({Role::kRetained, Role::kProjected}, true);
  static_cast<void>(bench.build());
  EXPECT_GE(bench.bound(), bench.score());
  const double exact = bench.certificate.folded[0] * std::ldexp(1.0, bench.rows.shift[0]);
  const float directed = bench.operand.coefficient[0];
  EXPECT_GE(static_cast<double>(directed), exact);
  bench.operand.coefficient[0] = static_cast<float>(exact);  // to nearest: down
  EXPECT_LT(bench.operand.coefficient[0], directed);
  EXPECT_LT(bench.bound(), bench.score());
}

// N11. Four lanes each round just over half the least subnormal up; the bound is scaled once and
// rounds down. The score ties the threshold, so that its key belongs to the answer.
TEST(GuardTerms, ThresholdAbsorbsTheLastRounding) {
  std::vector<float> weights(16, 0.0F);
  for (const std::size_t h : {0, 2, 4, 6}) weights[h] = 0x1p-50F;
  ScreeningBench bench(one_row(equal_heads(16, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})},
                               0x1p-100F * (1 + 0x1p-10F)));
  std::vector<Role> roles(16, Role::kZero);
  for (const std::size_t h : {0, 2, 4, 6}) roles[h] = Role::kRetained;
  bench.plan_by_hand(roles);
  static_cast<void>(bench.build());
  const float score = bench.score();
  const float computed = bench.computed()[0];
  EXPECT_EQ(score, 0x1p-147F);
  EXPECT_LT(computed, score);                                     // by itself no bound,
  EXPECT_TRUE(rejects(UpperBound(computed), LowerBound(score)));  // fatal,
  EXPECT_FALSE(rejects(UpperBound(computed), screen::guarded_threshold(score)));  // and guarded
  EXPECT_GE(screen::certified_bound(computed).value, score);
}

// N10. One lane overflows although the sum would not: the score is +Inf and the bound finite.
TEST(GuardTerms, KeysWhoseScoreCouldOverflowAreKept) {
  std::vector<float> weights(16, 0.0F);
  weights[0] = 0x1p60F * 1.5F;
  weights[2] = -0x1p60F * 1.4375F;
  weights[4] = -0x1p60F * 0.03125F;
  ScreeningBench bench(one_row(equal_heads(16, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})},
                               0x1p67F * 1.375F));
  std::vector<Role> roles(16, Role::kZero);
  for (const std::size_t h : {0, 2, 4}) roles[h] = Role::kRetained;
  bench.plan_by_hand(roles);
  static_cast<void>(bench.build());
  EXPECT_EQ(bench.score(), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bench.tile.factor[0]));  // never pruned
  EXPECT_EQ(bench.bound(), std::numeric_limits<float>::infinity());
  bench.tile.factor[0] = std::ldexp(0x1p67F * 1.375F, bench.tile.shift[0] - 18);
  EXPECT_LT(bench.bound(), bench.score());
}

// N10. The row's half of the same promise: partial sums overflow before the key scale.
TEST(GuardTerms, RowsWhoseScoreCouldOverflowAreNotCertified) {
  std::vector<float> weights(16, 0.0F);
  weights[0] = 3e38F;
  weights[8] = 3e38F;
  ScreeningBench bench(
      one_row(equal_heads(16, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})}, 0x1p-100F));
  std::vector<Role> roles(16, Role::kZero);
  roles[0] = roles[8] = Role::kRetained;
  bench.plan_by_hand(roles);
  const plan::Envelope envelope = bench.build();
  EXPECT_EQ(bench.score(), std::numeric_limits<float>::infinity());
  EXPECT_GT(envelope.strength, plan::kRowStrengthLimit);
}

// N10 in the engine. Key A overflows in one lane to +Inf and wins; its bound, were there one, is
// finite and below the score of the keys B.
TEST(GuardTerms, RowsWhoseScoreCouldOverflowAreScored) {
  std::vector<std::vector<std::uint8_t>> heads(7, vector_of({{0, 1}}));
  heads[6] = vector_of({{1, 1}});
  const std::vector<float> weights = {0x1.8p100F, 0, -0x1.7p100F, 0, -0x1p95F, 0, 0x1p100F};
  for (std::size_t id = 0; id < 16; ++id) {  // the sample holds some of these ids, not all
    std::vector<std::vector<std::uint8_t>> keys(4400, vector_of({{1, 1}}));
    keys[id] = vector_of({{0, 1}});
    oracle::Problem p = one_row(heads, weights, keys, 0x1.6p27F);
    p.topk = 1;
    EXPECT_EQ(oracle::score(p, 0, static_cast<std::int64_t>(id)),
              std::numeric_limits<float>::infinity());
    dosa_options options = oracle::make_options();
    options.mode = DOSA_MODE_DOSA;
    options.heads = p.num_heads;
    EXPECT_EQ(oracle::difference(p, oracle::top_k(p, {}), oracle::run(p, {}, options)), "") << id;
  }
}

// N5, E13. A linear row too small for its unit is left out; where it is negative, that would lower
// the bound by more than the other row is worth.
TEST(GuardTerms, LinearRowThatIsLeftOut) {
  ScreeningBench bench(one_row({vector_of({{0, 448}, {1, 32}}), vector_of({{0, -448}, {1, 32}})},
                               {-0x1p-127F, -0x1p-127F}, {vector_of({{0, 1}, {1, -448}})},
                               0x1p40F));
  bench.plan_by_hand({Role::kAggregated, Role::kAggregated2});
  bench.certificate.absolute = true;
  bench.certificate.num_aggregates = 2;
  static_cast<void>(bench.build());
  EXPECT_EQ(bench.operand.coefficient[0], 0.0F);
  EXPECT_LT(bench.operand.coefficient[1], 0.0F);
  EXPECT_EQ(bench.score(), 0.0F);  // neither head fires
  EXPECT_TRUE(std::isfinite(bench.computed()[0]));
  EXPECT_GE(bench.bound(), 0.0F);
}

// E6 rejects strictly below the threshold and nothing else: equality, NaN and infinities survive.
TEST(GuardTerms, OnlyAFiniteBoundBelowRejects) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_TRUE(rejects(UpperBound(1.0F), LowerBound(std::nextafterf(1.0F, 2.0F))));
  EXPECT_TRUE(rejects(UpperBound(-kMax), LowerBound(0.0F)));
  EXPECT_FALSE(rejects(UpperBound(1.0F), LowerBound(1.0F)));
  EXPECT_FALSE(rejects(UpperBound(-0.0F), LowerBound(0.0F)));
  EXPECT_FALSE(rejects(UpperBound(std::nanf("")), LowerBound(kMax)));
  EXPECT_FALSE(rejects(UpperBound(-kInf), LowerBound(0.0F)));
  EXPECT_FALSE(rejects(UpperBound(kInf), LowerBound(kMax)));
  EXPECT_FALSE(rejects(UpperBound(-kMax), LowerBound(-kInf)));
}

// N9 for the bound over all heads.
TEST(GuardTerms, UnderflowOfTheBoundOverAllHeads) {
  const double unit = 0x1p-9;
  const std::vector<float> weights(16, 0x1p-132F + 0x1p-149F);
  ScreeningBench bench(
      one_row(equal_heads(16, vector_of({{0, unit}})), weights, {vector_of({{0, unit}})}, 0x1p60F));
  static_cast<void>(bench.build_all_heads());
  const std::uint16_t pick = 0;
  const LowerBound guarded = screen::guarded_threshold(bench.score());
  for (const auto refine : {refine::refine_keys, refine::refine_keys_ref}) {
    std::uint16_t kept = 0;
    float score = 0.0F;
    float bound = 0.0F;
    EXPECT_EQ(
        refine(bench.pack, bench.tile, bench.all_heads, guarded, &pick, 1, &kept, &score, &bound),
        1);
    EXPECT_EQ(score, bench.score());
    EXPECT_GE(screen::certified_bound(bound).value, score);
  }
}

// N11 and N10: a threshold of +Inf rejects what is finite, and a computed -Inf is no bound.
TEST(GuardTerms, InfiniteThresholdsAndBounds) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(screen::guarded_threshold(kInf).value, std::numeric_limits<float>::max());
  EXPECT_EQ(screen::guarded_threshold(-kInf).value, -kInf);
  ScreeningBench bench(one_row({vector_of({{0, 1}})}, {1.0F}, {vector_of({{0, 1}})}, 1.0F));
  bench.plan_by_hand({Role::kRetained});
  static_cast<void>(bench.build());
  for (const auto screen : {screen::screen_tile, screen::screen_tile_ref}) {
    alignas(Arena::kAlignment) float bounds[plan::kTileKeys];
    bench.operand.floor = -kInf;
    EXPECT_EQ(screen(bench.operand, bench.tile, LowerBound(0.0F), bounds)[0] & 1, 1U);
    EXPECT_EQ(bounds[0], -kInf);
    bench.operand.floor = -0x1p30F;
    EXPECT_EQ(screen(bench.operand, bench.tile, LowerBound(0.0F), bounds)[0] & 1, 0U);
  }
}

// N8 for the bound over all heads, whose sum runs in lanes.
TEST(GuardTerms, SumOverAllHeads) {
  for (const int heads : {17, 33, 64, 128}) {
    std::vector<float> weights(static_cast<std::size_t>(heads), kUlp * (1 - 0x1p-10F));
    weights[0] = 1.0F;
    ScreeningBench bench(
        one_row(equal_heads(heads, vector_of({{0, 1}})), weights, {vector_of({{0, 1}})}, 1.0F));
    static_cast<void>(bench.build_all_heads());
    const std::uint16_t pick = 0;
    std::uint16_t kept = 0;
    float score = 0.0F;
    float bound = 0.0F;
    const LowerBound guarded = screen::guarded_threshold(bench.score());
    for (const auto refine : {refine::refine_keys, refine::refine_keys_ref}) {
      EXPECT_EQ(
          refine(bench.pack, bench.tile, bench.all_heads, guarded, &pick, 1, &kept, &score, &bound),
          1);
      EXPECT_EQ(score, bench.score());
      EXPECT_GE(screen::certified_bound(bound).value, score);
    }
  }
}

}  // namespace
}  // namespace dosa::test
