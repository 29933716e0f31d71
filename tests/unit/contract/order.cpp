// SPDX-License-Identifier: Apache-2.0
//
// The contract's order: higher score first, equal scores by lower id, -0 equal to +0, +Inf above
// and -Inf below every finite score, NaN last. By hand, in every mode.
#include <gtest/gtest.h>

#include <limits>

#include "oracle/generate.hpp"
#include "oracle/harness.hpp"

namespace dosa::oracle {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Ids = std::vector<std::int32_t>;

class ContractOrder : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] Outcome answer(const Problem& problem, const Request& request = {}) const {
    dosa_options options = make_options(request);
    options.mode = GetParam();
    const Outcome outcome = run(problem, request, options);
    EXPECT_EQ(difference(problem, top_k(problem, request), outcome), "");
    return outcome;
  }
  [[nodiscard]] Ids ids(const Problem& problem, const Request& request = {}) const {
    return ids_of(answer(problem, request), 0, problem.topk);
  }
};

INSTANTIATE_TEST_SUITE_P(EveryMode, ContractOrder, ::testing::Values(0, 1, 2, 3, 4));

/// The score of key i is values[i], of either sign.
Problem signed_dial(const std::vector<float>& values, int topk) {
  Problem p = dial(std::vector<float>(values.size(), 1.0F), 1, topk, 1.0F, 64);
  // Key i sees head i only, so that its weight is its score.
  std::fill(p.q.begin(), p.q.end(), std::uint8_t{0});
  std::fill(p.k.begin(), p.k.end(), std::uint8_t{0});
  std::fill(p.weights.begin(), p.weights.end(), 0.0F);
  for (std::size_t i = 0; i < values.size(); ++i) {
    p.q[i * 128 + i] = encode_e4m3(1);
    p.k[i * 128 + i] = encode_e4m3(1);
    p.weights[i] = values[i];
  }
  return p;
}

TEST_P(ContractOrder, HigherFirst) {
  EXPECT_EQ(ids(signed_dial({1, -2, 3, -4, 5}, 2)), (Ids{2, 4}));
  EXPECT_EQ(ids(signed_dial({1, -2, 3, -4, 5}, 4)), (Ids{0, 1, 2, 4}));
}

TEST_P(ContractOrder, EqualScoresByLowerId) {
  EXPECT_EQ(ids(dial({7, 7, 7, 7, 7}, 1, 3)), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(dial({1, 7, 7, 7, 9}, 1, 3)), (Ids{1, 2, 4}));
  std::vector<float> many(20000, 1.0F);
  many[19999] = 2.0F;
  const Ids found = ids(dial(many, 1, 100));
  for (std::int32_t i = 0; i < 99; ++i) EXPECT_EQ(found[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(found[99], 19999);
}

TEST_P(ContractOrder, ZerosOfBothSignsTie) {
  // Keys that no head sees score +0 or -0 by the signs of the weights; dial gives both.
  EXPECT_EQ(ids(signed_dial({0.0F, -0.0F, 0.0F, -0.0F}, 2)), (Ids{0, 1}));
  EXPECT_EQ(ids(signed_dial({-0.0F, 0.0F, -1.0F, 0.0F}, 2)), (Ids{0, 1}));
  Problem p = dial({0.0F, 1.0F, -0.0F, 0.0F, -0.0F, 2.0F}, 1, 4);
  EXPECT_EQ(ids(p), (Ids{0, 1, 2, 5}));
  p.weights[0] = -1.0F;
  EXPECT_EQ(ids(p), (Ids{0, 2, 3, 4}));
}

TEST_P(ContractOrder, NegativeScalesAndTheirZeros) {
  EXPECT_EQ(ids(dial({-1.0F, 2.0F, -3.0F, 0.0F}, 1, 2)), (Ids{1, 3}));
  EXPECT_EQ(ids(dial({-1.0F, -2.0F, -3.0F, -0.5F}, 1, 2)), (Ids{0, 3}));
}

TEST_P(ContractOrder, InfinitiesAndNanByScale) {
  // A scale of Inf meets zeros in the other lanes and gives NaN: a NaN scale or an infinite one
  // ranks below everything.
  EXPECT_EQ(ids(dial({kNan, 1.0F, kInf, -5.0F, -kInf, 0.0F}, 1, 3)), (Ids{1, 3, 5}));
  EXPECT_EQ(ids(dial({kNan, 1.0F, kInf, -5.0F, -kInf, 0.0F}, 1, 5)), (Ids{0, 1, 2, 3, 5}));
}

TEST_P(ContractOrder, InfinitiesByOverflow) {
  // 2^26 * 3e38 overflows to +Inf, with weight -1 to -Inf.
  Problem p = dial({3e38F, 1.0F, 3e38F, 2.0F}, 1, 2, 1.0F, 2);
  for (const std::size_t at : {std::size_t{0}, std::size_t{2 * 128}}) p.k[at] = encode_e4m3(448);
  EXPECT_EQ(ids(p), (Ids{0, 2}));
  const Outcome outcome = answer(p);
  EXPECT_EQ(outcome.scores[0], kInf);
  p.weights[0] = -1.0F;
  EXPECT_EQ(ids(p), (Ids{1, 3}));
  p.topk = 3;
  EXPECT_EQ(ids(p), (Ids{0, 1, 3}));  // -Inf ties by id
  p.k_scale[1] = kNan;
  EXPECT_EQ(ids(p), (Ids{0, 2, 3}));  // and stands above NaN
}

TEST_P(ContractOrder, NanWeightMakesEveryScoreNan) {
  Problem p = dial({1, 2, 3, 4}, 1, 2, kNan);
  EXPECT_EQ(ids(p), (Ids{0, 1}));
  EXPECT_TRUE(std::isnan(answer(p).scores[0]));
}

TEST_P(ContractOrder, NanCodesCountAsZeroAfterTheRelu) {
  Problem p = dial({1, 2, 3, 4}, 1, 2);
  p.k[3 * 128 + 9] = 0x7f;  // the best key has a NaN code: score 0
  EXPECT_EQ(ids(p), (Ids{1, 2}));
  p.q[77] = 0xff;  // and now every dot product is NaN
  EXPECT_EQ(ids(p), (Ids{0, 1}));
  EXPECT_EQ(answer(p).scores[0], 0.0F);
}

TEST_P(ContractOrder, ByScore) {
  Request request;
  request.order = Order::kByScore;
  EXPECT_EQ(ids(dial({3, 9, 3, 7, 9}, 1, 4), request), (Ids{1, 4, 3, 0}));
  EXPECT_EQ(ids(signed_dial({-1, 0.0F, -0.0F, 5}, 4), request), (Ids{3, 1, 2, 0}));
  EXPECT_EQ(ids(dial({1, kNan, 4, 2}, 1, 4), request), (Ids{2, 3, 0, 1}));
  const Outcome outcome = answer(dial({3, 9, 3, 7, 9}, 1, 4), request);
  EXPECT_EQ(outcome.scores, (std::vector<float>{9, 9, 7, 3}));
}

TEST_P(ContractOrder, SubnormalsAreKeptApart) {
  EXPECT_EQ(ids(dial({1e-45F, 3e-45F, 2e-45F, 0.0F, 1e-38F}, 1, 2)), (Ids{1, 4}));
}

}  // namespace
}  // namespace dosa::oracle
