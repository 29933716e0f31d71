// SPDX-License-Identifier: Apache-2.0
#include "plan/allowance.hpp"

#include <algorithm>
#include <cmath>

#include "numeric/outward.hpp"

namespace dosa::plan {
namespace {

// The joint allowance costs |P|^2 dot products; beyond this many heads `best` takes the triangle.
constexpr int kMaxJointHeads = 32;

struct Omitted {
  int count = 0;
  std::array<std::int16_t, DOSA_MAX_HEADS> head{};
};

Omitted omitted_positive(const Certificate& certificate) {
  Omitted omitted;
  for (int h = 0; h < certificate.heads; ++h) {
    if (certificate.role[static_cast<std::size_t>(h)] == Role::kProjected) {
      omitted.head[static_cast<std::size_t>(omitted.count++)] = static_cast<std::int16_t>(h);
    }
  }
  return omitted;
}

/// E3: the anchor and beta = max(0, q_h.q_j / |q_j|^2) that leave the smallest residual. Whatever
/// double is stored is the beta of the proof, so its rounding needs no allowance.
void choose_anchor(const QueryRows& rows, int head_dim, int h, Certificate& certificate) {
  double best_gain = 0.0;
  for (int n = 0; n < certificate.num_retained; ++n) {
    const int j = certificate.retained[static_cast<std::size_t>(n)];
    const double dot = query_dot(rows, head_dim, h, j);
    const double squared = rows.norm[j] * rows.norm[j];
    if (dot <= 0.0 || squared == 0.0 || dot * dot / squared <= best_gain) continue;
    best_gain = dot * dot / squared;
    certificate.anchor[static_cast<std::size_t>(h)] = static_cast<std::int16_t>(j);
    certificate.beta[static_cast<std::size_t>(h)] = dot / squared;
  }
}

/// |d_h| over coordinates [begin, end), d_h = q_h - beta q_anchor, rounded up.
double residual_norm(const QueryRows& rows, int head_dim, const Certificate& certificate, int h,
                     int begin, int end) {
  const int anchor = certificate.anchor[static_cast<std::size_t>(h)];
  const double beta = certificate.beta[static_cast<std::size_t>(h)];
  double squared = 0.0;
  for (int d = begin; d < end; ++d) {
    double value = query_unit(rows, head_dim, h, d);
    if (anchor >= 0) value -= beta * query_unit(rows, head_dim, anchor, d);
    squared += value * value;
  }
  // A coordinate is off by 2^-52 of its two terms, and beta |q_anchor| <= |q_h| (N7).
  return outward(std::sqrt(squared) + 0x1p-50 * rows.norm[h]);
}

/// E4: sum_P w_h |d_h| over coordinates [begin, end). The norms are rounded up by more than their
/// sum can lose.
double triangle(const QueryRows& rows, const float* weights, int head_dim,
                const Certificate& certificate, const Omitted& omitted, int begin, int end) {
  double sum = 0.0;
  for (int n = 0; n < omitted.count; ++n) {
    const int h = omitted.head[static_cast<std::size_t>(n)];
    sum += weights[h] * residual_norm(rows, head_dim, certificate, h, begin, end);
  }
  return sum;
}

/// w_g w_h d_g . d_h from exact integer dot products.
double residual_gram(const QueryRows& rows, const float* weights, int head_dim,
                     const Certificate& certificate, int g, int h) {
  const int ag = certificate.anchor[static_cast<std::size_t>(g)];
  const int ah = certificate.anchor[static_cast<std::size_t>(h)];
  const double bg = certificate.beta[static_cast<std::size_t>(g)];
  const double bh = certificate.beta[static_cast<std::size_t>(h)];
  double value = query_dot(rows, head_dim, g, h);
  if (ah >= 0) value -= bh * query_dot(rows, head_dim, g, ah);
  if (ag >= 0) value -= bg * query_dot(rows, head_dim, ag, h);
  if (ag >= 0 && ah >= 0) value += bg * bh * query_dot(rows, head_dim, ag, ah);
  return static_cast<double>(weights[g]) * weights[h] * value;
}

/// E7: sqrt(sum_gh [u_g . u_h]+).
double joint(const QueryRows& rows, const float* weights, int head_dim,
             const Certificate& certificate, const Omitted& omitted) {
  double sum = 0.0;
  double strength = 0.0;
  for (int m = 0; m < omitted.count; ++m) {
    const int g = omitted.head[static_cast<std::size_t>(m)];
    strength += weights[g] * rows.norm[g];
    for (int n = m; n < omitted.count; ++n) {
      const int h = omitted.head[static_cast<std::size_t>(n)];
      const double gram = residual_gram(rows, weights, head_dim, certificate, g, h);
      sum += std::max(0.0, gram) * (m == n ? 1.0 : 2.0);
    }
  }
  // Expanding the residuals cancels; the terms are within 2^-48 w_g w_h |q_g||q_h| (E7).
  return outward(std::sqrt(sum + 0x1p-46 * strength * strength));
}

}  // namespace

void add_allowances(const QueryRows& rows, const float* weights, int head_dim,
                    const CertificateOptions& options, Certificate& certificate) {
  const Omitted omitted = omitted_positive(certificate);
  certificate.num_projected = omitted.count;
  if (omitted.count == 0) return;
  for (int n = 0; n < omitted.count; ++n) {
    const int h = omitted.head[static_cast<std::size_t>(n)];
    if (options.projection) choose_anchor(rows, head_dim, h, certificate);
    const int anchor = certificate.anchor[static_cast<std::size_t>(h)];
    if (anchor < 0) continue;
    double& folded = certificate.folded[static_cast<std::size_t>(anchor)];
    folded += outward(weights[h] * certificate.beta[static_cast<std::size_t>(h)]);
    folded += std::fabs(folded) * 0x1p-50;  // upward for either sign
  }
  certificate.allowance = triangle(rows, weights, head_dim, certificate, omitted, 0, head_dim);
  const bool best = options.allowance == DOSA_ALLOWANCE_BEST && omitted.count <= kMaxJointHeads;
  if (best || options.allowance == DOSA_ALLOWANCE_JOINT) {
    const double value = joint(rows, weights, head_dim, certificate, omitted);
    certificate.allowance = best ? std::min(value, certificate.allowance) : value;
  }
  if (options.allowance != DOSA_ALLOWANCE_GROUPED) return;
  certificate.groups = options.groups;
  const int width = head_dim / options.groups;
  for (int g = 0; g < options.groups; ++g) {
    certificate.group_allowance[static_cast<std::size_t>(g)] =
        triangle(rows, weights, head_dim, certificate, omitted, g * width, (g + 1) * width);
  }
}

}  // namespace dosa::plan
