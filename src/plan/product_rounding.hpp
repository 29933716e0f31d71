// SPDX-License-Identifier: Apache-2.0
// How far a score model's dot products may lie from the exact ones, in the form that plans use.
#pragma once

namespace dosa::plan {

/// |computed - exact| <= (per_norm |q| + per_prefix W(q) + per_product P(q)) n(k) for D = 128 and
/// every e4m3 key: W(q)^2 = 9 |q_1|^2 + 4 |q_2|^2 + |q_3|^2 over the k-steps, P(q) is the power of
/// two X(q) or the largest entry A(q) itself, and n(k) >= |k|, 5 X(k) is what prepare_sm90.cuh
/// makes. All numbers are exact or rounded up.
struct ProductRounding {
  float per_norm;
  float per_prefix;
  float per_product;
  bool sm90;  // P(q) = X(q), and S13 to S16 hold
};

/// wgmma on sm_90: S11 of docs/numerics-sm90.md; 2^-13 * 128 / 5.
constexpr ProductRounding kRoundingSm90{0x1p-13f, 0x1p-13f * 33.0f, 0x1.99999ap-9f, true};

/// Any fp16 product with an fp32 accumulator of sm_80 and later: M4 of docs/numerics-mma.md.
constexpr ProductRounding kRoundingMmaF16{0x1p-14f, 0.0f, 0.0f, false};

/// The native e4m3 product of sm_89 and sm_120: M5 of docs/numerics-mma.md, A(k) <= 15/8 X(k).
constexpr ProductRounding kRoundingMmaFp8{0x1p-12f * 151.0f, 0.0f, 0x1p-12f * 144.0f * 0.375f,
                                          false};

}  // namespace dosa::plan
