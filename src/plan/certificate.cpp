// SPDX-License-Identifier: Apache-2.0
#include "plan/certificate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/allowance.hpp"

namespace dosa::plan {
namespace {

// Omitted negative heads active at least this often, but on less than half of the sample, form the
// second aggregate; quieter ones would mostly cancel.
constexpr double kSecondSupport = 0.125;

struct Ranked {
  double value;
  std::int16_t head;
};

/// Descending by value, ties by head, so that a plan does not depend on the sort.
void rank(Ranked* begin, Ranked* end) {
  std::sort(begin, end, [](const Ranked& a, const Ranked& b) {
    return a.value != b.value ? a.value > b.value : a.head < b.head;
  });
}

double priority(const QueryRows& rows, const float* weights, int h,
                const ActivationStatistics& statistics, const CertificateOptions& options) {
  const double strength = std::fabs(static_cast<double>(weights[h])) * rows.norm[h];
  if (weights[h] > 0.0F || options.retain == DOSA_RETAIN_STRENGTH) return strength;
  const double p = statistics.frequency(h);
  return strength * std::min(p, 1.0 - p);
}

/// Retained heads: all positive heads and the most uncertain negative ones, or the strongest
/// positive.
void retain_heads(const QueryRows& rows, const float* weights,
                  const ActivationStatistics& statistics, const CertificateOptions& options,
                  Certificate& certificate) {
  std::array<Ranked, DOSA_MAX_HEADS> positive;
  std::array<Ranked, DOSA_MAX_HEADS> negative;
  std::size_t num_positive = 0;
  std::size_t num_negative = 0;
  for (int h = 0; h < certificate.heads; ++h) {
    if (weights[h] == 0.0F) continue;
    const double value = priority(rows, weights, h, statistics, options);
    auto& list = weights[h] > 0.0F ? positive : negative;
    auto& count = weights[h] > 0.0F ? num_positive : num_negative;
    list[count++] = {value, static_cast<std::int16_t>(h)};
  }
  rank(positive.data(), positive.data() + num_positive);
  rank(negative.data(), negative.data() + num_negative);
  const auto budget = static_cast<std::size_t>(options.retained);
  const auto keep = [&](const Ranked& entry) {
    const auto h = static_cast<std::size_t>(entry.head);
    certificate.retained[static_cast<std::size_t>(certificate.num_retained++)] = entry.head;
    certificate.role[h] = Role::kRetained;
    certificate.folded[h] = weights[entry.head];
  };
  for (std::size_t n = 0; n < num_positive; ++n) {
    if (n < budget) {
      keep(positive[n]);
    } else {
      certificate.role[static_cast<std::size_t>(positive[n].head)] = Role::kProjected;
    }
  }
  for (std::size_t n = 0; n < num_negative; ++n) {
    if (num_positive + n < budget) {
      keep(negative[n]);
    } else {
      certificate.role[static_cast<std::size_t>(negative[n].head)] = Role::kIgnored;
    }
  }
}

/// E5: omitted negative heads that are active on most of the sample are summed into one row.
void aggregate_heads(const ActivationStatistics& statistics, dosa_aggregate form,
                     Certificate& certificate) {
  if (form == DOSA_AGGREGATE_NONE) return;
  bool used[2] = {false, false};
  for (int h = 0; h < certificate.heads; ++h) {
    Role& role = certificate.role[static_cast<std::size_t>(h)];
    if (role != Role::kIgnored) continue;
    const double p = statistics.frequency(h);
    const bool second = form == DOSA_AGGREGATE_TWO || form == DOSA_AGGREGATE_ABSOLUTE;
    if (form == DOSA_AGGREGATE_ALL || p >= 0.5) {
      role = Role::kAggregated;
      used[0] = true;
    } else if (second && p >= kSecondSupport) {
      role = Role::kAggregated2;
      used[1] = true;
    } else {
      continue;
    }
    ++certificate.num_aggregated;
  }
  certificate.absolute = form == DOSA_AGGREGATE_ABSOLUTE && (used[0] || used[1]);
  certificate.num_aggregates = certificate.absolute ? 2 : (used[0] ? 1 : 0) + (used[1] ? 1 : 0);
}

}  // namespace

double query_dot(const QueryRows& rows, int head_dim, int g, int h) {
  std::int64_t sum = 0;
  for (int d = 0; d < head_dim; ++d) {
    sum += static_cast<std::int64_t>(query_unit(rows, head_dim, g, d)) *
           query_unit(rows, head_dim, h, d);
  }
  return static_cast<double>(sum);
}

Certificate make_certificate(const QueryRows& rows, const float* weights, int heads, int head_dim,
                             const ActivationStatistics& statistics,
                             const CertificateOptions& options) {
  Certificate certificate;
  certificate.heads = heads;
  certificate.anchor.fill(-1);
  retain_heads(rows, weights, statistics, options, certificate);
  aggregate_heads(statistics, options.aggregate, certificate);
  add_allowances(rows, weights, head_dim, options, certificate);
  return certificate;
}

}  // namespace dosa::plan
