// SPDX-License-Identifier: Apache-2.0
// From a certificate to the numbers of the screening kernel, every rounding enclosed.
#ifndef DOSA_PLAN_ENVELOPE_HPP
#define DOSA_PLAN_ENVELOPE_HPP

#include "plan/certificate.hpp"
#include "plan/screen_operand.hpp"

namespace dosa::plan {

/// sum_h |w_h| |q_h|, weight x units of 2^-9, may not exceed this in a certified row (N10).
inline constexpr double kRowStrengthLimit = 0x1p72;

/// Everything that is added to the bound for rounding, term by term (docs/numerics.md). All are
/// coefficients of the key norm kappa but `low`, of lambda, and `floor`.
struct Envelope {
  double reconstruction = 0.0;  // N5: screening rows stored as int16, sum |c_j| |rho_j|
  double reference = 0.0;       // N2: the score's own fp32 arithmetic, gamma_ref sum |w_h| |q_h|
  double screening = 0.0;       // N8: fp32 sum of the bound, gamma_s sum |c_j| |g^_j|
  double growth = 0.0;          // N8: 1 / (1 - gamma_s), on all coefficients
  double low = 0.0;             // N5: rows meet k^ and not k, sum |c_j| |g^_j|
  double floor = 0.0;           // N9: underflow of products before the key scale
  double strength = 0.0;        // sum_h |w_h| |q_h|
};

/// Roundings on the longest path of the reference score (N2).
int reference_roundings(int heads);

/// Fills `operand` (placed for at least num_retained + kMaxAuxiliary rows).
/// Returns the envelope that went into it; the operand is valid unless strength exceeds
/// kRowStrengthLimit, in which case the row may not be screened.
Envelope build_operand(const Certificate& certificate, const QueryRows& rows, const float* weights,
                       ScreenOperand& operand);

/// The same for all heads. `scratch` is an operand placed for num heads rows.
Envelope build_all_heads(const QueryRows& rows, const float* weights, int heads, int head_dim,
                         ScreenOperand& scratch, AllHeadsOperand& all_heads);

/// E and B from the terms (N8); separate so that a test can leave a term out.
void set_terms(const Certificate& certificate, const Envelope& envelope, ScreenOperand& operand);

}  // namespace dosa::plan

#endif  // DOSA_PLAN_ENVELOPE_HPP
