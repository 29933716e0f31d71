// SPDX-License-Identifier: Apache-2.0
// Step 1: which heads are evaluated, which lean on an anchor, which are aggregated (docs/math.md).
// Nothing decided here can make an answer wrong: any choice gives a valid bound, a good one a tight
// one.
#ifndef DOSA_PLAN_CERTIFICATE_HPP
#define DOSA_PLAN_CERTIFICATE_HPP

#include <array>
#include <cstdint>

#include "dosa/dosa.h"
#include "plan/operands.hpp"

namespace dosa::plan {

/// The part of dosa_options that shapes a certificate.
struct CertificateOptions {
  int retained = 0;  // r >= 1
  dosa_retain retain = DOSA_RETAIN_UNCERTAINTY;
  bool projection = true;
  dosa_allowance allowance = DOSA_ALLOWANCE_BEST;
  int groups = 4;
  dosa_aggregate aggregate = DOSA_AGGREGATE_SUPPORT;
};

/// How often each head is active (positive dot product) on the sampled keys.
struct ActivationStatistics {
  int samples = 0;  // 0: nothing known, every frequency counts as 1/2
  std::array<std::int32_t, DOSA_MAX_HEADS> active{};
  [[nodiscard]] double frequency(int head) const {
    return samples == 0 ? 0.5
                        : static_cast<double>(active[static_cast<std::size_t>(head)]) / samples;
  }
};

enum class Role : std::int8_t {
  kZero = 0,  // zero weight: contributes nothing
  kRetained = 1,
  kProjected = 2,    // omitted positive head (E3)
  kAggregated = 3,   // in the first aggregate (E5)
  kAggregated2 = 4,  // in the second, disjoint one (E10)
  kIgnored = 5       // omitted negative head: leaving it out only raises the bound
};

struct Certificate {
  int heads = 0;
  int num_retained = 0;
  int num_projected = 0;
  int num_aggregated = 0;
  int num_aggregates = 0;  // 0, 1 or 2 auxiliary rows
  bool absolute = false;
  int groups = 0;  // > 0: group_allowance is set
  std::array<Role, DOSA_MAX_HEADS> role{};
  std::array<std::int16_t, DOSA_MAX_HEADS> retained{};  // heads in screening order
  std::array<std::int16_t, DOSA_MAX_HEADS> anchor{};    // of projected heads; -1: none
  std::array<double, DOSA_MAX_HEADS> beta{};            // of projected heads
  std::array<double, DOSA_MAX_HEADS> folded{};          // w~ of retained heads, rounded up (E4)
  double allowance = 0.0;                               // E_P, rounded up; weight x units of 2^-9
  std::array<double, kMaxGroups> group_allowance{};     // E_g, rounded up (E8)
};

/// Shapes: weights (H); rows: the split query. Any statistics are valid.
Certificate make_certificate(const QueryRows& rows, const float* weights, int heads, int head_dim,
                             const ActivationStatistics& statistics,
                             const CertificateOptions& options);

/// The exact integer q_g . q_h in units of 2^-18, as a double (below 2^44: exact).
double query_dot(const QueryRows& rows, int head_dim, int g, int h);

/// q_h[d] in units of 2^-9.
inline std::int32_t query_unit(const QueryRows& rows, int head_dim, int h, int d) {
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(h) * head_dim + d;
  return rows.hat[at] * (1 << rows.shift[h]) + rows.low[at];
}

}  // namespace dosa::plan

#endif  // DOSA_PLAN_CERTIFICATE_HPP
