// SPDX-License-Identifier: Apache-2.0
// Inputs for tests of the device engine, made on the host.
#pragma once

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dosa/dosa_cuda.h"
#include "gpu/device_array.hpp"

namespace dosa::testing {

constexpr int kDim = 128;

struct HostInputs {
  int queries = 0;
  int keys = 0;
  int heads = 0;
  int dim = kDim;
  std::vector<uint8_t> q;               // (Q, H, D)
  std::vector<uint8_t> k;               // (N, D)
  std::vector<float> k_scale;           // (N)
  std::vector<float> weights;           // (Q, H)
  std::vector<int32_t> k_start, k_end;  // (Q)
};

inline uint8_t encode(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

inline HostInputs make_shape(int queries, int keys, int heads) {
  HostInputs inputs;
  inputs.queries = queries;
  inputs.keys = keys;
  inputs.heads = heads;
  inputs.q.assign(static_cast<size_t>(queries) * heads * kDim, 0);
  inputs.k.assign(static_cast<size_t>(keys) * kDim, 0);
  inputs.k_scale.assign(keys, 1.0f);
  inputs.weights.assign(static_cast<size_t>(queries) * heads, 0.0f);
  inputs.k_start.assign(queries, 0);
  inputs.k_end.assign(queries, keys);
  return inputs;
}

/// REAL (CASES): normal queries and keys, mostly negative weights; sums are not free of order.
inline HostInputs make_real(int queries, int keys, int heads, unsigned seed) {
  HostInputs inputs = make_shape(queries, keys, heads);
  std::mt19937 random(seed);
  std::vector<uint8_t> table(1 << 16);
  std::normal_distribution<float> normal;
  for (uint8_t& code : table) code = encode(20.0f * normal(random));
  for (uint8_t& code : inputs.q) code = table[random() & 0xffff];
  for (uint8_t& code : inputs.k) code = table[random() & 0xffff];
  for (float& scale : inputs.k_scale) scale = 0.01f * std::exp(0.3f * normal(random));
  for (float& weight : inputs.weights) {
    weight = 0.01f * (std::fabs(normal(random)) + 0.1f) * (random() % 4 == 0 ? 1.0f : -1.0f);
  }
  return inputs;
}

/// INT (CASES): small integers, every sum exact in any order, many ties.
inline HostInputs make_int(int queries, int keys, int heads, unsigned seed) {
  HostInputs inputs = make_shape(queries, keys, heads);
  std::mt19937 random(seed);
  for (uint8_t& code : inputs.q) code = encode(static_cast<float>(random() % 5) - 2.0f);
  for (uint8_t& code : inputs.k) code = encode(static_cast<float>(random() % 5) - 2.0f);
  for (float& scale : inputs.k_scale) scale = std::ldexp(1.0f, static_cast<int>(random() % 5) - 2);
  for (float& weight : inputs.weights)
    weight = 0.125f * (static_cast<float>(random() % 65) - 32.0f);
  return inputs;
}

/// DIAL (CASES): the score of key i is `values[i]` exactly, for every row.
inline HostInputs make_dial(int queries, int heads, const std::vector<float>& values, float sign) {
  HostInputs inputs = make_shape(queries, static_cast<int>(values.size()), heads);
  for (int row = 0; row < queries; ++row) {
    inputs.q[static_cast<size_t>(row) * heads * kDim] = encode(1.0f);
    inputs.weights[static_cast<size_t>(row) * heads] = sign;
  }
  for (size_t key = 0; key < values.size(); ++key) {
    inputs.k[key * kDim] = encode(1.0f);
    inputs.k_scale[key] = values[key];
  }
  return inputs;
}

/// The same inputs with only the first `dim` coordinates, or with zeros behind them.
inline HostInputs with_dim(const HostInputs& from, int dim) {
  HostInputs inputs = from;
  inputs.dim = dim;
  const auto copy = [&](const std::vector<uint8_t>& rows) {
    const size_t count = rows.size() / static_cast<size_t>(from.dim);
    std::vector<uint8_t> out(count * static_cast<size_t>(dim), 0);
    for (size_t row = 0; row < count; ++row) {
      for (int d = 0; d < std::min(dim, from.dim); ++d) {
        out[row * static_cast<size_t>(dim) + static_cast<size_t>(d)] =
            rows[row * static_cast<size_t>(from.dim) + static_cast<size_t>(d)];
      }
    }
    return out;
  };
  inputs.q = copy(from.q);
  inputs.k = copy(from.k);
  return inputs;
}

inline void make_causal(HostInputs& inputs) {
  for (int row = 0; row < inputs.queries; ++row) {
    inputs.k_end[row] = inputs.keys - inputs.queries + row + 1;
  }
}

/// Windows of every kind: whole, short, empty, inverted, past the end, negative.
inline void make_ragged(HostInputs& inputs, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int most) { return static_cast<int>(random() % (most + 1)); };
  for (int row = 0; row < inputs.queries; ++row) {
    const int kind = row % 7;
    inputs.k_start[row] = kind == 5 ? -10 : below(inputs.keys);
    inputs.k_end[row] = kind == 4 ? inputs.keys + 1000 : below(inputs.keys);
    if (kind == 0) inputs.k_start[row] = 0, inputs.k_end[row] = inputs.keys;
    if (kind == 1) inputs.k_end[row] = inputs.k_start[row];
    if (kind == 2) inputs.k_end[row] = inputs.k_start[row] + below(300);
    if (kind == 3) inputs.k_end[row] = inputs.k_start[row] - 5;
  }
}

/// The inputs on the device and the problem that points to them.
struct DeviceInputs {
  DeviceArray<uint8_t> q, k;
  DeviceArray<float> k_scale, weights;
  DeviceArray<int32_t> k_start, k_end;
  dosa_problem problem{};

  DeviceInputs(const HostInputs& host, int topk)
      : q(host.q),
        k(host.k),
        k_scale(host.k_scale),
        weights(host.weights),
        k_start(host.k_start),
        k_end(host.k_end) {
    problem.struct_size = sizeof problem;
    problem.num_queries = host.queries;
    problem.num_keys = host.keys;
    problem.num_heads = host.heads;
    problem.head_dim = host.dim;
    problem.topk = topk;
    problem.page_size = 64;
    problem.q = q.get();
    problem.q_stride = static_cast<int64_t>(host.heads) * host.dim;
    problem.k = k.get();
    problem.k_stride = host.dim;
    problem.k_scale = k_scale.get();
    problem.weights = weights.get();
    problem.weights_stride = host.heads;
    problem.k_start = k_start.get();
    problem.k_end = k_end.get();
  }
};

}  // namespace dosa::testing
