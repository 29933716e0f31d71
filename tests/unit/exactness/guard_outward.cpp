// SPDX-License-Identifier: Apache-2.0
//
// The guard terms against roundings of double: far too small to be met by chance, so each has an
// input made for it, on which the plain sum or product lies below its exact rational value.
#include <gtest/gtest.h>

#include <cmath>

#include "oracle/rational.hpp"
#include "screening_bench.hpp"

namespace dosa::test {
namespace {

using oracle::Rational;
using plan::Role;

Rational exact(double x) { return Rational(x); }

/// E and B of an envelope whose sum or product, rounded to nearest, would be exactly 1.
plan::ScreenOperand terms_of(const plan::Certificate& certificate, const plan::Envelope& envelope) {
  plan::ScreenOperand operand;
  plan::set_terms(certificate, envelope, operand);
  return operand;
}

// N8. 1 + 2^-60 is 1 in double; 1 + 2^-25 is 1 in fp32.
TEST(GuardOutward, NormTerm) {
  for (const double small : {0x1p-60, 0x1p-25}) {
    for (double plan::Envelope::*term : {&plan::Envelope::reconstruction,
                                         &plan::Envelope::reference, &plan::Envelope::screening}) {
      plan::Certificate certificate;
      certificate.allowance = 1.0;
      plan::Envelope envelope;
      envelope.growth = 1.0;
      envelope.*term = small;
      EXPECT_GE(exact(terms_of(certificate, envelope).norm_term), 1 + exact(small));
    }
  }
}

// N8. Each product rounds to nearest, the last one down to 1.
TEST(GuardOutward, LowTerm) {
  plan::Envelope envelope;
  envelope.low = 1 - 3 * 0x1p-53;
  envelope.growth = 1 + 0x1p-52;
  ASSERT_EQ(envelope.low * envelope.growth * envelope.growth, 1.0);
  const Rational growth = exact(envelope.growth);
  const Rational product = exact(envelope.low) * growth * growth;
  EXPECT_GE(exact(terms_of({}, envelope).low_term), product);
  for (const double gamma : {0x1p-16, 0.2}) {  // the whole factor, 1.5 in the second case
    envelope.low = 1.0;
    envelope.growth = 1 / (1 - gamma);
    EXPECT_GE(exact(terms_of({}, envelope).low_term), (1 + exact(gamma)) / (1 - exact(gamma)));
  }
  envelope.growth = 1 + 0x1p-52;
  envelope.low = 1 + 0x1p-25;  // to nearest fp32: 1
  EXPECT_GE(exact(terms_of({}, envelope).low_term), exact(envelope.low) * growth * growth);
}

// N8. What the per-key minimum is taken of.
TEST(GuardOutward, AllowancesOfTheMinimum) {
  plan::Certificate certificate;
  certificate.groups = 2;
  certificate.allowance = 1 + 0x1p-25;
  certificate.group_allowance[0] = 1 + 0x1p-26;
  certificate.group_allowance[1] = 0x1p-150;
  plan::Envelope envelope;
  envelope.growth = 1.0;
  const plan::ScreenOperand operand = terms_of(certificate, envelope);
  EXPECT_GE(static_cast<double>(operand.allowance), certificate.allowance);
  EXPECT_GE(static_cast<double>(operand.group_allowance[0]), certificate.group_allowance[0]);
  EXPECT_GE(static_cast<double>(operand.group_allowance[1]), certificate.group_allowance[1]);
}

// N8. gamma_s pays for the per-key minimum as well: E_P enters by its size.
TEST(GuardOutward, ScreeningTermCountsTheMinimum) {
  ScreeningBench bench(one_row({vector_of({{0, 1}}), vector_of({{1, 1}})}, {1.0F, 1.0F},
                               {vector_of({{0, 1}})}, 1.0F),
                       ScreeningBench::kGroups);
  plan::CertificateOptions options;
  options.retained = 1;
  options.allowance = DOSA_ALLOWANCE_GROUPED;
  bench.plan_by_rule(options);
  const plan::Envelope envelope = bench.build();
  const Rational rounding = (bench.operand.rows + bench.operand.groups + 4) * exact(0x1p-24);
  EXPECT_GE(exact(envelope.screening),
            rounding / (1 - rounding) * (exact(envelope.low) + exact(bench.certificate.allowance)));
}

// N5. A coordinate of 2^-60 is lost beside 1: the stored row is off by all of it.
TEST(GuardOutward, SumOfAnAggregate) {
  ScreeningBench bench(one_row({vector_of({{0, 1}}), vector_of({{0, 1}}), vector_of({{1, 1}})},
                               {-1.0F, -0x1p-60F, 1.0F}, {vector_of({{0, 1}})}, 1.0F));
  bench.plan_by_hand({Role::kAggregated, Role::kAggregated, Role::kRetained});
  const plan::Envelope envelope = bench.build();
  const auto stored = static_cast<std::int16_t>(bench.operand.pairs[64] & 0xFFFF);
  const Rational unit = -exact(bench.operand.coefficient[1]);
  const Rational sum = 512 * (1 + exact(0x1p-60));
  ASSERT_LT(unit * stored, sum);
  EXPECT_GE(exact(envelope.reconstruction), sum - unit * stored);
}

// N6. 2^-60 is lost beside 1, and a product of weight and beta is lost where the rest cancels.
TEST(GuardOutward, FoldedWeights) {
  const auto head = vector_of({{0, 3}, {1, 2}});
  const auto other = vector_of({{0, 1}, {1, 6}});  // beta = 15/13
  const auto folded_is_enclosed = [&](float w, float w_projected) {
    ScreeningBench bench(one_row({head, other}, {w, w_projected}, {head}, 1.0F));
    bench.plan_by_hand({Role::kRetained, Role::kProjected}, true);
    EXPECT_EQ(bench.certificate.anchor[1], 0);
    const Rational product = exact(w_projected) * exact(bench.certificate.beta[1]);
    return exact(bench.certificate.folded[0]) >= exact(w) + product;
  };
  EXPECT_TRUE(folded_is_enclosed(1.0F, 0x1p-60F));
  // w_h beta nearly cancels w: what is left is smaller than the rounding of the product.
  for (int n = 1; n < 2000; ++n) {
    const auto w_projected = static_cast<float>(1 + n * 0x1p-13 + 0x1p-23);
    const auto w = static_cast<float>(-15.0 / 13.0 * w_projected);
    EXPECT_TRUE(folded_is_enclosed(w, w_projected)) << n;
  }
}

// N7. A norm of 5, so that nothing rounds here: what must be left is what 2^7 roundings of the sum
// of squares could lose elsewhere, a relative 2^-45.
TEST(GuardOutward, AllowancesHoldWhateverTheRoundings) {
  for (const auto form : {DOSA_ALLOWANCE_TRIANGLE, DOSA_ALLOWANCE_JOINT}) {
    ScreeningBench bench(one_row({vector_of({{0, 8}}), vector_of({{1, 3}, {2, 4}})}, {1.0F, 1.0F},
                                 {vector_of({{0, 1}})}, 1.0F));
    plan::CertificateOptions options;
    options.retained = 1;
    options.allowance = form;
    bench.plan_by_rule(options);
    EXPECT_GE(exact(bench.certificate.allowance), 5 * 512 * (1 + exact(0x1p-45))) << form;
  }
}

// N3. Norms of exactly 2^16 and 2^15 need a shift: their product would be 2^31.
TEST(GuardOutward, IntegerRowsStayBelowTheirLimits) {
  std::map<int, double> head;
  std::map<int, double> key;
  for (int d = 0; d < 64; ++d) {
    head[d] = 16.0;
    key[d] = 8.0;
  }
  const ScreeningBench bench(one_row({vector_of(head)}, {1.0F}, {vector_of(key)}, 1.0F));
  std::int64_t head_square = 0;
  std::int64_t key_square = 0;
  for (int d = 0; d < 128; ++d) {
    head_square += std::int64_t{bench.rows.hat[d]} * bench.rows.hat[d];
    key_square += std::int64_t{bench.tile.rows[d]} * bench.tile.rows[d];
  }
  EXPECT_LT(head_square, std::int64_t{1} << 32);
  EXPECT_LT(key_square, std::int64_t{1} << 30);
}

// N4. The norms that planning starts from, each by itself.
TEST(GuardOutward, NormsOfAQuery) {
  int plain_fails = 0;
  for (int n = 0; n < 256; ++n) {
    std::map<int, double> values;
    for (int d = 0; d < 8; ++d) values[d] = ((n * 37 + d * 101) % 64) * 0.125 + 0x1p-9 * (n % 8);
    values[9] = n % 2 == 0 ? 448 : 1;
    const auto codes = vector_of(values, 3 * 0x1p-9);
    ScreeningBench bench(one_row({codes}, {1.0F}, {codes}, 1.0F));
    for (const bool reference : {false, true}) {
      if (reference) {
        const float weight = 1.0F;
        plan::pack_query_ref(codes.data(), &weight, bench.pack, bench.rows);
      }
      const oracle::Vector q = oracle::decode(codes.data(), 128);
      Rational square = 0;
      Rational low_square = 0;
      Rational hat_square = 0;
      for (std::size_t d = 0; d < 128; ++d) {
        const Rational low = bench.rows.low[d];
        const Rational hat = bench.rows.hat[d];
        ASSERT_EQ(hat * (1 << bench.rows.shift[0]) + low, Rational(q.units[d]));
        square += Rational(q.units[d]) * q.units[d];
        low_square += low * low;
        hat_square += hat * hat;
      }
      const auto encloses = [](double norm, const Rational& squared) {
        return exact(norm) * exact(norm) >= squared;
      };
      EXPECT_TRUE(encloses(bench.rows.norm[0], square)) << n;
      EXPECT_TRUE(encloses(bench.rows.low_norm[0], low_square)) << n;
      EXPECT_TRUE(encloses(bench.rows.hat_norm[0], hat_square)) << n;
      plain_fails += encloses(std::sqrt(square.get_d()), square) ? 0 : 1;
    }
  }
  EXPECT_GT(plain_fails, 50);
}

}  // namespace
}  // namespace dosa::test
