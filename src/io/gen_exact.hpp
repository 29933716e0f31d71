// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/trace.hpp"

namespace dosa::io {

struct ExactShape {
  std::int64_t num_queries = 64;
  std::int64_t num_keys = 16384;
  std::int64_t num_heads = 32;
  std::int64_t head_dim = 128;
  std::uint64_t seed = 0;
};

/// Which keys each query sees.
enum class Windows {
  kFull,    // all N
  kCausal,  // row t sees [0, N - Q + t + 1)
  kSliding  // as causal, the last `width` of them
};

void set_windows(TraceData& data, Windows windows, std::int64_t width);

/// Inputs of the given shape: everything zero (k_scale 1), windows full.
/// Throws: Error where an extent is negative, or the tensors would not fit the address space.
[[nodiscard]] TraceData blank_trace(const ExactShape& shape);

// Inputs whose scores are known without computing them, or whose sums are exact in every order.
// e0 is the first unit vector; heads that are not mentioned have query and weight zero.

/// q_0 = e0, w_0 = `weight`, every key e0, k_scale = values: the score of key i is weight *
/// values[i]. Shapes:   values (N)
[[nodiscard]] TraceData make_dial(const ExactShape& shape, const std::vector<float>& values,
                                  float weight);

/// Every key is -e0, so every score is zero, except `winners` shuffled keys that are e0: 1, 2, 3,
/// ...
[[nodiscard]] TraceData make_zero(const ExactShape& shape, std::int64_t winners);

/// Key i is e_(i mod D) and row r asks for e_(r mod D): score 1 iff i = r (mod D), else 0.
[[nodiscard]] TraceData make_residue(const ExactShape& shape);

/// Entries in {-2..2}, weights multiples of 1/8 in [-4, 4], scales powers of two in [1/4, 4]: every
/// partial sum is exact in fp32, so every order of summing gives the same bits; ties are plenty.
[[nodiscard]] TraceData make_int(const ExactShape& shape);

/// Entries uniform over the 254 finite e4m3 codes, weights in [-1, 1), scales in [2^-12, 2^-8):
/// sums depend on their order.
[[nodiscard]] TraceData make_real(const ExactShape& shape);

/// One way of choosing the N values of make_dial.
struct DialValues {
  std::string_view name;
  std::string_view parameters;  // "LO:HI"; empty where there are none
  std::string_view what;
};

[[nodiscard]] const std::vector<DialValues>& dial_values();

/// The N values that `spec`, "name" or "name:a" or "name:a:b", stands for.
/// Throws: Error naming found and expected.
[[nodiscard]] std::vector<float> make_dial_values(std::string_view spec, std::int64_t num_keys,
                                                  std::uint64_t seed);

}  // namespace dosa::io
