// SPDX-License-Identifier: Apache-2.0
// How far a score model's dot products may lie from the exact ones, in the form that plans use.
#pragma once

namespace dosa::plan {

/// |computed - exact| <= per_norm |q||k| + per_product A(q) 448 for D = 128 and every e4m3 key,
/// where A(q) = max(2^-6, max_d |q_d|). Both numbers are exact multiples of a power of two.
struct ProductRounding {
  float per_norm;
  float per_product;
  bool joint;  // S13 of docs/numerics-sm90.md holds for sums over heads
};

/// wgmma on sm_90: S9 with R(q) R(k) <= 3 |q||k|.
constexpr ProductRounding kRoundingSm90{0x1p-13f * (33.0f * 3.0f + 1.0f), 0x1p-13f * 127.0f, true};

/// Any fp16 product with an fp32 accumulator of sm_80 and later: M4 of docs/numerics-mma.md.
constexpr ProductRounding kRoundingMmaF16{0x1p-14f, 0.0f, false};

/// The native e4m3 product of sm_89 and sm_120: M5 of docs/numerics-mma.md.
constexpr ProductRounding kRoundingMmaFp8{0x1p-12f * 151.0f, 0x1p-12f * 144.0f, false};

}  // namespace dosa::plan
