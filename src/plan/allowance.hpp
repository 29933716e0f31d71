// SPDX-License-Identifier: Apache-2.0
// What omitted positive heads can add beyond their anchors: E3, E4, E7 and E8 of docs/math.md.
#ifndef DOSA_PLAN_ALLOWANCE_HPP
#define DOSA_PLAN_ALLOWANCE_HPP

#include "plan/certificate.hpp"

namespace dosa::plan {

/// Anchors, folded weights and allowances of the projected heads; roles and retained are set.
void add_allowances(const QueryRows& rows, const float* weights, int head_dim,
                    const CertificateOptions& options, Certificate& certificate);

}  // namespace dosa::plan

#endif  // DOSA_PLAN_ALLOWANCE_HPP
