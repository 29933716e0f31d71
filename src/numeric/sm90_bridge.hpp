// SPDX-License-Identifier: Apache-2.0
// Partial sums of a dot product against its end: S13 of docs/numerics-sm90.md, for host and device.
#ifndef DOSA_NUMERIC_SM90_BRIDGE_HPP
#define DOSA_NUMERIC_SM90_BRIDGE_HPP

#ifdef __CUDACC__
#define DOSA_HOST_DEVICE __host__ __device__
#else
#define DOSA_HOST_DEVICE
#endif

namespace dosa {

/// x_t, the first t of four parts of x = q.k, is t/4 x + b_t.k with the bridge b_t = q_<=t - t/4 q.
/// So x_1 + x_2 + x_3 is this share of x, and the bridges.
inline constexpr float kSm90BridgeShare = 1.5F;

/// Returns sum_tu |b_t . c_u|, t and u from 1 to 3, of the bridges of two vectors a and c.
/// Shapes:   prefix (4,): dot products of their first 1 to 4 parts
/// Error:    at most 2^-16 |a||c| too low where the prefixes are off by 2^-21 |a||c|
[[nodiscard]] DOSA_HOST_DEVICE inline float sm90_bridge_sum(const float (&prefix)[4]) {
  float sum = 0.0F;
  for (int t = 0; t < 3; ++t) {
    for (int u = t; u < 3; ++u) {
      const float first = 0.25F * static_cast<float>(t + 1);
      const float second = 0.25F * static_cast<float>(u + 1);
      const float dot = (1.0F - second) * prefix[t] - first * (prefix[u] - second * prefix[3]);
      sum += (t == u ? 1.0F : 2.0F) * (dot < 0.0F ? -dot : dot);
    }
  }
  return sum;
}

}  // namespace dosa

#undef DOSA_HOST_DEVICE

#endif  // DOSA_NUMERIC_SM90_BRIDGE_HPP
