// SPDX-License-Identifier: Apache-2.0
#include "engine/describe.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace dosa::engine {
namespace {

// Planning works in units of 2^-9, payload units are 2^9 times larger.
constexpr double kToPayload = 0x1p-9;

int count_role(const plan::Certificate& certificate, plan::Role role) {
  const auto* begin = certificate.role.begin();
  return static_cast<int>(std::count(begin, begin + certificate.heads, role));
}

}  // namespace

void describe(const RowState& state, const dosa_problem& problem, dosa_certificate& out) {
  const std::size_t size = out.struct_size;
  out = {};
  out.struct_size = size;
  out.valid = state.certifiable ? 1 : 0;
  for (int h = 0; h < problem.num_heads; ++h) {
    const float weight = state.query.weights[h];
    out.weight[h] = weight;
    out.norm[h] = static_cast<float>(state.query_rows.norm[h] * kToPayload);
    out.anchor[h] = -1;
    out.active[h] = std::numeric_limits<float>::quiet_NaN();
    if (weight > 0.0F) ++out.num_positive;
    if (weight < 0.0F) ++out.num_negative;
    if (weight == 0.0F) ++out.num_zero;
  }
  if (!state.certifiable) return;
  const plan::Certificate& certificate = state.certificate;
  out.num_retained = certificate.num_retained;
  out.num_omitted_positive = certificate.num_projected;
  out.num_aggregated = certificate.num_aggregated;
  out.num_ignored = count_role(certificate, plan::Role::kIgnored);
  out.screening_rows = state.operand.rows;
  for (int h = 0; h < problem.num_heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    out.role[h] = static_cast<std::int8_t>(certificate.role[at]);
    out.anchor[h] = certificate.anchor[at];
    if (certificate.role[at] == plan::Role::kRetained) {
      out.folded_weight[h] = static_cast<float>(certificate.folded[at]);
    }
    if (state.statistics.samples > 0) {
      out.active[h] = static_cast<float>(state.statistics.frequency(h));
    }
  }
  out.allowance = static_cast<float>(certificate.allowance * kToPayload);
  const plan::Envelope& envelope = state.envelope;
  out.guard = static_cast<float>(
      (envelope.reconstruction + envelope.reference + envelope.screening) * kToPayload);
  out.threshold = state.records.threshold();
}

}  // namespace dosa::engine
