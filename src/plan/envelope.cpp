// SPDX-License-Identifier: Apache-2.0
#include "plan/envelope.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/outward.hpp"

namespace dosa::plan {
namespace {

struct RowCost {
  double low;             // |c| |g^|
  double reconstruction;  // |c| / unit * |rho|
};

std::int32_t pack_pair(std::int32_t first, std::int32_t second) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(first) & 0xFFFFU) |
                                   (static_cast<std::uint32_t>(second) << 16));
}

/// A retained head: its own int16 row; the coefficient w~ 2^s is rounded up (N6).
RowCost add_retained(const Certificate& certificate, const QueryRows& rows, int h,
                     ScreenOperand& operand) {
  const int dims = operand.head_dim;
  std::memcpy(operand.pairs + static_cast<std::ptrdiff_t>(operand.rows) * (dims / 2),
              rows.hat + static_cast<std::ptrdiff_t>(h) * dims,
              sizeof(std::int16_t) * static_cast<std::size_t>(dims));
  const double unit = std::ldexp(1.0, rows.shift[h]);
  const float coefficient = round_up(certificate.folded[static_cast<std::size_t>(h)] * unit);
  operand.coefficient[operand.rows++] = coefficient;
  const double magnitude = std::fabs(static_cast<double>(coefficient));
  return {magnitude * rows.hat_norm[h], magnitude / unit * rows.low_norm[h]};
}

/// sign1 * (heads of the first aggregate) + sign2 * (heads of the second), |w_h| q_h, times
/// `factor`.
double sum_heads(const Certificate& certificate, const QueryRows& rows, const float* weights,
                 double factor1, double factor2, int dims, double* sum) {
  std::fill(sum, sum + dims, 0.0);
  double strength = 0.0;
  for (int h = 0; h < certificate.heads; ++h) {
    const Role role = certificate.role[static_cast<std::size_t>(h)];
    double factor = 0.0;
    if (role == Role::kAggregated) factor = factor1;
    if (role == Role::kAggregated2) factor = factor2;
    if (factor == 0.0) continue;
    const double weight = std::fabs(static_cast<double>(weights[h])) * factor;
    strength += std::fabs(weight) * rows.norm[h];
    const double unit = std::ldexp(1.0, rows.shift[h]);
    const std::int16_t* hat = rows.hat + static_cast<std::ptrdiff_t>(h) * dims;
    const std::int16_t* low = rows.low + static_cast<std::ptrdiff_t>(h) * dims;
    for (int d = 0; d < dims; ++d) sum[d] += weight * (hat[d] * unit + low[d]);
  }
  return strength;
}

/// Power of two that brings `sum` into int16 and its norm below kQueryNorm; 0 for the zero vector.
double aggregate_unit(const double* sum, int dims) {
  double squared = 0.0;
  double largest = 0.0;
  for (int d = 0; d < dims; ++d) {
    squared += sum[d] * sum[d];
    largest = std::max(largest, std::fabs(sum[d]));
  }
  if (squared == 0.0) return 0.0;
  int exponent = 0;
  std::frexp(std::max(outward(std::sqrt(squared)) / static_cast<double>(kQueryNorm),
                      outward(largest) / (kInt16Max - 1)),
             &exponent);
  return std::ldexp(1.0, exponent);
}

/// An aggregate: subtracted with the power of two that is its unit, so that the coefficient is
/// exact. A unit that is no normal fp32 number leaves a row of zeros: nothing is subtracted.
RowCost add_aggregate(const Certificate& certificate, const QueryRows& rows, const float* weights,
                      double factor1, double factor2, ScreenOperand& operand) {
  const int dims = operand.head_dim;
  double sum[DOSA_MAX_HEAD_DIM];
  const double strength = sum_heads(certificate, rows, weights, factor1, factor2, dims, sum);
  const double unit = aggregate_unit(sum, dims);
  const auto coefficient = static_cast<float>(-unit);
  std::int32_t* pairs = operand.pairs + static_cast<std::ptrdiff_t>(operand.rows) * (dims / 2);
  const int row = operand.rows++;
  if (!std::isnormal(coefficient)) {
    std::fill(pairs, pairs + dims / 2, 0);
    operand.coefficient[row] = 0.0F;
    // The linear row of the absolute form may be negative: leaving it out must be paid for.
    return {0.0, operand.absolute ? outward(strength) : 0.0};
  }
  operand.coefficient[row] = coefficient;
  double hat_squared = 0.0;
  double rest_squared = 0.0;
  std::int32_t hat[DOSA_MAX_HEAD_DIM];
  for (int d = 0; d < dims; ++d) {
    hat[d] = static_cast<std::int32_t>(std::lround(sum[d] / unit));
    const double rest = sum[d] - hat[d] * unit;
    hat_squared += static_cast<double>(hat[d]) * hat[d];
    rest_squared += rest * rest;
  }
  for (int j = 0; j < dims / 2; ++j) pairs[j] = pack_pair(hat[2 * j], hat[2 * j + 1]);
  const double rest = std::sqrt(rest_squared) + 0x1p-45 * strength;  // the sum itself is rounded
  return {unit * outward(std::sqrt(hat_squared)), outward(rest)};
}

}  // namespace

int reference_roundings(int heads) {
  const int padded = heads <= 16 ? 16 : (heads + 7) / 8 * 8;
  return padded / 8 + 5;
}

void set_terms(const Certificate& certificate, const Envelope& envelope, ScreenOperand& operand) {
  double sum = envelope.reconstruction + envelope.reference + envelope.screening;
  operand.groups = certificate.groups;
  if (certificate.groups == 0) {
    sum += certificate.allowance;
  } else {
    // The per-key minimum is bounded by allowance * kappa; its own rounding is part of `screening`.
    // Both are upper bounds already: only their conversion to fp32 has to go upwards.
    operand.allowance = round_up(certificate.allowance);
    for (int g = 0; g < certificate.groups; ++g) {
      operand.group_allowance[g] =
          round_up(certificate.group_allowance[static_cast<std::size_t>(g)]);
    }
  }
  operand.norm_term = round_up(outward(sum * envelope.growth));
  operand.low_term = round_up(outward(envelope.low * envelope.growth * envelope.growth));
  operand.floor = round_up(envelope.floor);
}

Envelope build_operand(const Certificate& certificate, const QueryRows& rows, const float* weights,
                       ScreenOperand& operand) {
  Envelope envelope;
  operand.rows = 0;
  operand.absolute = certificate.absolute;
  const auto add = [&envelope](const RowCost& cost) {
    envelope.low += cost.low;
    envelope.reconstruction += cost.reconstruction;
  };
  for (int n = 0; n < certificate.num_retained; ++n) {
    add(add_retained(certificate, rows, certificate.retained[static_cast<std::size_t>(n)],
                     operand));
  }
  if (certificate.absolute) {  // (y1 + y2) / 2 + |y1 - y2| / 2
    add(add_aggregate(certificate, rows, weights, 0.5, 0.5, operand));
    add(add_aggregate(certificate, rows, weights, 0.5, -0.5, operand));
  } else if (certificate.num_aggregates > 0) {
    add(add_aggregate(certificate, rows, weights, 1.0, 0.0, operand));
    if (certificate.num_aggregates > 1) {
      add(add_aggregate(certificate, rows, weights, 0.0, 1.0, operand));
    }
  }
  for (int h = 0; h < certificate.heads; ++h) {
    envelope.strength += std::fabs(static_cast<double>(weights[h])) * rows.norm[h];
  }
  const double gamma_s = gamma(operand.rows + certificate.groups + 6);
  envelope.reference = gamma(reference_roundings(certificate.heads)) * envelope.strength;
  envelope.screening =
      gamma_s * (envelope.low + (certificate.groups > 0 ? certificate.allowance : 0.0));
  envelope.growth = 1.0 / (1.0 - gamma_s);
  envelope.floor = (reference_roundings(certificate.heads) * 8 + 2) * 0x1p-131;
  set_terms(certificate, envelope, operand);
  return envelope;
}

Envelope build_all_heads(const QueryRows& rows, const float* weights, int heads, int head_dim,
                         ScreenOperand& scratch, AllHeadsOperand& all_heads) {
  CertificateOptions options;
  options.retained = heads;
  const Certificate certificate =
      make_certificate(rows, weights, heads, head_dim, ActivationStatistics{}, options);
  const Envelope envelope = build_operand(certificate, rows, weights, scratch);
  all_heads.norm_term = scratch.norm_term;
  all_heads.low_term = scratch.low_term;
  all_heads.floor = scratch.floor;
  std::fill(all_heads.coefficient, all_heads.coefficient + padded_heads(heads), 0.0F);
  for (int n = 0; n < certificate.num_retained; ++n) {
    all_heads.coefficient[certificate.retained[static_cast<std::size_t>(n)]] =
        scratch.coefficient[n];
  }
  return envelope;
}

}  // namespace dosa::plan
