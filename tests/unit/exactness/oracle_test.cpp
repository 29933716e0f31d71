// SPDX-License-Identifier: Apache-2.0
//
// The oracle against answers known without it.
#include "oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "oracle/generate.hpp"

namespace dosa::oracle {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(OracleCodes, KnownValues) {
  const auto value = [](int code) {
    return std::ldexp(decode_e4m3(static_cast<std::uint8_t>(code)).units, -9);
  };
  EXPECT_EQ(value(0x00), 0.0);
  EXPECT_EQ(value(0x01), 0.001953125);  // the least subnormal, 2^-9
  EXPECT_EQ(value(0x07), 7 * 0.001953125);
  EXPECT_EQ(value(0x08), 0.015625);  // the least normal, 2^-6
  EXPECT_EQ(value(0x38), 1.0);
  EXPECT_EQ(value(0x3c), 1.5);
  EXPECT_EQ(value(0xc0), -2.0);
  EXPECT_EQ(value(0x7e), 448.0);
  EXPECT_EQ(value(0xfe), -448.0);
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(decode_e4m3(static_cast<std::uint8_t>(code)).nan, code == 0x7f || code == 0xff);
  }
}

TEST(OracleCodes, EncodeInvertsDecodeAndRoundsToEven) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const auto c = static_cast<std::uint8_t>(code);
    const double value = std::copysign(std::ldexp(decode_e4m3(c).units, -9), code < 128 ? 1 : -1);
    EXPECT_EQ(encode_e4m3(value), c);
  }
  EXPECT_EQ(encode_e4m3(1.0625), 0x38);  // half way between 1 and 1.125
  EXPECT_EQ(encode_e4m3(1.1875), 0x3a);  // half way between 1.125 and 1.25
  EXPECT_EQ(encode_e4m3(1e9), 0x7e);
}

TEST(OracleRounding, NearestEvenByHand) {
  const auto unit = [](double x) { return static_cast<std::int64_t>(std::ldexp(x, 18)); };
  EXPECT_EQ(round_units(0), 0.0F);
  EXPECT_EQ(round_units(1), 0x1p-18F);
  EXPECT_EQ(round_units(unit(1.5)), 1.5F);
  const std::int64_t two24 = std::int64_t{1} << 24;
  EXPECT_EQ(round_units(two24 + 1), std::ldexp(static_cast<float>(two24), -18));      // tie, down
  EXPECT_EQ(round_units(two24 + 3), std::ldexp(static_cast<float>(two24 + 4), -18));  // tie, up
  EXPECT_EQ(round_units(4 * two24 + 3), 0x1p8F);                         // steps of 8: down
  EXPECT_EQ(round_units(4 * two24 + 5), std::nextafterf(0x1p8F, 1e9F));  // and up
  EXPECT_EQ(round_units(2 * two24 - 1), std::ldexp(static_cast<float>(2 * two24), -18));  // carry
}

TEST(OracleRounding, EqualsTheProcessor) {
  Random random(1);
  for (int i = 0; i < 1000000; ++i) {
    const int bits = static_cast<int>(random.between(0, 52));
    std::int64_t units = random.below(std::int64_t{1} << bits);
    if (i % 3 == 0) units = (units >> 20 << 20) + (std::int64_t{1} << 19);  // many exact ties
    if (i % 2 == 0) units = -units;
    const auto expected = static_cast<float>(std::ldexp(static_cast<double>(units), -18));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(round_units(units)),
              std::bit_cast<std::uint32_t>(units == 0 ? 0.0F : expected))
        << units;
  }
}

// Lane 0 owns heads 0, 1, 8, 9, ...; its even chain here is fma(r0, w0, rn(r8 * w8)).
TEST(OracleChain, TheSecondProductIsTheOneRounded) {
  std::vector<float> relu(16, 0.0F);
  std::vector<float> weights(16, 0.0F);
  relu[0] = 1 + 0x1p-12F;
  weights[0] = 1 + 0x1p-12F;  // product 1 + 2^-11 + 2^-24: exact inside an fma only
  relu[8] = 1.0F;
  weights[8] = -1.0F;
  // fma: (1 + 2^-11 + 2^-24) - 1 = 2^-11 + 2^-24. The other order would give 2^-11.
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p-11F + 0x1p-24F);
  std::swap(relu[0], relu[8]);
  std::swap(weights[0], weights[8]);
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p-11F);
}

TEST(OracleChain, LaterProductsEnterInOrder) {
  std::vector<float> relu(32, 0.0F);
  std::vector<float> weights(32, 1.0F);
  relu[0] = 0x1p24F;  // j = 0
  relu[16] = 1.0F;    // j = 2: absorbed, ties to even
  relu[24] = 1.0F;    // j = 3: absorbed as well; added first they would count
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p24F);
  relu[0] = 0.0F;
  relu[24] = 0x1p24F;  // now j = 2 is in the sum before
  relu[8] = 1.0F;      // and j = 1
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p24F + 2);
}

TEST(OracleChain, ParityThenScaleThenLanes) {
  std::vector<float> relu(16, 0.0F);
  const std::vector<float> weights(16, 1.0F);
  relu[0] = 0x1p24F;
  relu[1] = 1.0F;  // same lane, other chain: added before the scale, absorbed
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p24F);
  relu[1] = 0.0F;
  relu[2] = 1.0F;  // lane 1
  relu[4] = 1.0F;  // lane 2: rn(rn(p0 + p1) + rn(p2 + p3)) absorbs each
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p24F);
  relu[2] = 0.0F;
  relu[6] = 1.0F;  // lanes 2 and 3 are added first: 2, which counts
  EXPECT_EQ(chain(relu, weights, 1.0F), 0x1p24F + 2);
}

// The scale is applied in each lane, so that a sum may overflow where one product would not.
TEST(OracleChain, TheScaleComesBeforeTheLanesAreAdded) {
  std::vector<float> relu(16, 0.0F);
  std::vector<float> weights(16, 1.0F);
  relu[0] = 1.0F;
  relu[2] = 1.0F;
  weights[2] = -1.0F;
  EXPECT_TRUE(std::isnan(chain(relu, weights, kInf)));  // Inf - Inf, not 0 * Inf
  weights[2] = 0x1p-1F;
  EXPECT_EQ(chain(relu, weights, 0x1p-149F), 0x1p-149F);  // 1/2 of the least subnormal: to even, 0
  weights[2] = 0x1.8p-1F;
  EXPECT_EQ(chain(relu, weights, 0x1p-149F), 0x1p-148F);
}

TEST(OracleChain, ScaleTimesZeroIsNanForInfAndNan) {
  const std::vector<float> none(1, 0.0F);
  const std::vector<float> one(1, 1.0F);
  EXPECT_TRUE(std::isnan(chain(none, one, kInf)));
  EXPECT_TRUE(std::isnan(chain(none, one, kNan)));
  EXPECT_EQ(chain(one, one, -kInf) < 0, false);  // lanes 1 to 3 are 0 * -Inf = NaN
}

TEST(OracleScore, NanCodesActLikeZeros) {
  Problem p = dial({1.0F, 2.0F, 3.0F}, 1, 3);
  p.k[128 + 77] = 0x7f;
  EXPECT_EQ(score(p, 0, 0), 1.0F);
  EXPECT_EQ(score(p, 0, 1), 0.0F);
  EXPECT_EQ(score(p, 0, 2), 3.0F);
  p.q[5] = 0xff;
  EXPECT_EQ(score(p, 0, 2), 0.0F);
}

TEST(OracleScore, DialIsExact) {
  const std::vector<float> v = {0.1F, 3e38F, 1e-40F, 0x1p-149F, 1.0F};
  const Problem plus = dial(v, 2, 5, 1.0F, 3);
  const Problem minus = dial(v, 2, 5, -1.0F, 3);
  for (std::size_t i = 0; i < v.size(); ++i) {
    EXPECT_EQ(score(plus, 1, static_cast<std::int64_t>(i)), v[i]);
    EXPECT_EQ(score(minus, 1, static_cast<std::int64_t>(i)), -v[i]);
  }
}

TEST(OracleScore, ReluBeforeTheWeightedSum) {
  Problem p = dial(std::vector<float>(2, 1.0F), 1, 1, 1.0F, 2);
  p.weights = {1.0F, 1.0F};
  p.q.assign(p.q.size(), 0);
  p.q[0] = encode_e4m3(1);        // head 0 reads coordinate 0
  p.q[128 + 1] = encode_e4m3(1);  // head 1 reads coordinate 1
  p.k[0] = encode_e4m3(2);
  p.k[1] = encode_e4m3(-10);
  p.k[128] = p.k[129] = encode_e4m3(0.5);
  EXPECT_EQ(score(p, 0, 0), 2.0F);
  EXPECT_EQ(score(p, 0, 1), 1.0F);
}

TEST(OracleOrder, HigherThenLowerIdThenNan) {
  EXPECT_TRUE(ranks_before(2.0F, 9, 1.0F, 0));
  EXPECT_TRUE(ranks_before(1.0F, 0, 1.0F, 1));
  EXPECT_FALSE(ranks_before(1.0F, 1, 1.0F, 0));
  EXPECT_TRUE(ranks_before(-0.0F, 0, 0.0F, 1));
  EXPECT_TRUE(ranks_before(0.0F, 0, -0.0F, 1));
  EXPECT_TRUE(ranks_before(kInf, 5, 3e38F, 0));
  EXPECT_TRUE(ranks_before(-3e38F, 5, -kInf, 0));
  EXPECT_TRUE(ranks_before(-kInf, 5, kNan, 0));
  EXPECT_TRUE(ranks_before(kNan, 0, -kNan, 1));
}

TEST(OracleSelect, TiesWindowsAndSuffix) {
  Problem p = dial({5, 1, 5, 5, 0, 5}, 3, 4);
  p.start = {-7, 3, 4};
  p.end = {100, 3, 2};
  const auto rows = top_k(p, {});
  EXPECT_EQ(rows[0].ids, (std::vector<std::int32_t>{0, 2, 3, 5}));
  EXPECT_EQ(rows[0].scores, (std::vector<float>{5, 5, 5, 5}));
  EXPECT_EQ(rows[1].ids, (std::vector<std::int32_t>{-1, -1, -1, -1}));
  EXPECT_EQ(rows[2].ids, (std::vector<std::int32_t>{-1, -1, -1, -1}));
  EXPECT_TRUE(std::isnan(rows[1].scores[0]));
  p.topk = 9;
  EXPECT_EQ(top_k(p, {})[0].ids, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, -1, -1, -1}));
}

TEST(OracleSelect, FormsOrdersAndForcedKeys) {
  Problem p = dial({9, 1, 5, 7, 0, 2, 8, 3}, 1, 3);
  p.start = {1};
  p.end = {7};  // scores 1 5 7 0 2 8
  Request request;
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{2, 3, 6}));
  request.order = Order::kByScore;
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{6, 3, 2}));
  request.form = IndexForm::kRelative;
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{5, 2, 1}));
  request.form = IndexForm::kOffset;
  request.index_offset = {100};
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{105, 102, 101}));
  request.form = IndexForm::kSlot;
  request.page_size = 2;
  request.page_table_pages = 3;
  request.page_table = {40, 7, 30};
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{61, 14, 81}));
  request.form = IndexForm::kAbsolute;
  request.order = Order::kById;
  request.forced_first = 1;
  request.forced_last = 1;
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{1, 3, 6}));
  EXPECT_EQ(top_k(p, request)[0].scores, (std::vector<float>{kInf, 7, kInf}));
  request.forced_first = 4;
  EXPECT_EQ(top_k(p, request)[0].ids, (std::vector<std::int32_t>{1, 2, 3}));
}

TEST(OracleSelect, ResidueClosedForm) {
  for (const std::int64_t n : {100, 128, 1000, 1024, 1100}) {
    const Problem p = residue(5, n, 8);
    const auto rows = top_k(p, {});
    for (std::int64_t r = 0; r < 5; ++r) {
      EXPECT_EQ(rows[static_cast<std::size_t>(r)].ids, residue_ids(r, n, 8)) << n << " " << r;
    }
  }
}

TEST(OracleSelect, CrossCheckByCounting) {
  Recipe recipe;
  recipe.kind = Kind::kInt;
  recipe.weights = Weights::kSigned;
  recipe.num_queries = 3;
  recipe.num_heads = 5;
  recipe.num_keys = 200;
  recipe.topk = 20;
  for (recipe.seed = 0; recipe.seed < 20; ++recipe.seed) {
    const Problem p = make_problem(recipe);
    const auto rows = top_k(p, {});
    for (std::int64_t r = 0; r < 3; ++r) {
      const auto s = row_scores(p, r);
      for (std::int32_t i = 0; i < 200; ++i) {
        int before = 0;
        for (std::int32_t j = 0; j < 200; ++j) {
          const float si = s[static_cast<std::size_t>(i)];
          const float sj = s[static_cast<std::size_t>(j)];
          before += sj > si || (sj == si && j < i) ? 1 : 0;
        }
        const auto& ids = rows[static_cast<std::size_t>(r)].ids;
        EXPECT_EQ(std::count(ids.begin(), ids.end(), i), before < 20 ? 1 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace dosa::oracle
