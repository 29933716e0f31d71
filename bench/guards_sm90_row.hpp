// SPDX-License-Identifier: Apache-2.0
// One row's certificate as the device plans it (src/plan/plan_sm90.cu), in double and with every
// term of its guard by itself, for bench_guards_sm90.
#ifndef DOSA_BENCH_GUARDS_SM90_ROW_HPP
#define DOSA_BENCH_GUARDS_SM90_ROW_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "dosa/dosa.h"
#include "numeric/e4m3.hpp"
#include "numeric/sm90_bridge.hpp"

namespace dosa::bench {

constexpr int kDim = 128;
constexpr double kUnit = 0x1p-13;
constexpr double kShare = kUnit * (33 * static_cast<double>(kSm90BridgeShare) + 1);
using Vector = std::array<double, kDim>;

inline Vector decode_vector(const std::uint8_t* codes) {
  Vector vector;
  for (int d = 0; d < kDim; ++d)
    vector[static_cast<std::size_t>(d)] = e4m3_units(codes[d]) * 0x1p-9;
  return vector;
}

inline double dot(const Vector& a, const Vector& b, int from = 0, int to = kDim) {
  return std::inner_product(a.begin() + from, a.begin() + to, b.begin() + from, 0.0);
}
inline double norm(const Vector& a) { return std::sqrt(dot(a, a)); }

inline double largest(const Vector& a) {
  double most = 0x1p-6;
  for (const double value : a) most = std::max(most, std::abs(value));
  return most;
}
inline double power(const Vector& a) { return std::exp2(std::floor(std::log2(largest(a)))); }

/// What each part adds per n(k) (S11, S13, S15, N2).
struct GuardTerms {
  double heads = 0.0;      // aggregated heads
  double rows = 0.0;       // the aggregate's rows, with what they leave of it
  double projected = 0.0;  // projected heads and their anchors
  double sums = 0.0;       // fp32 chains
  double singly = 0.0;     // instead of heads and rows: S9 of every vector by itself
};

struct DeviceRow {
  std::vector<Vector> q;
  std::vector<double> weight;
  std::vector<int> retained, projected, aggregated;
  std::vector<double> folded;  // by head
  double allowance = 0.0;      // E_P
  GuardTerms guard;

  DeviceRow(const dosa_problem& problem, std::int64_t row) {
    const auto* const codes = problem.q + row * problem.q_stride;
    for (int h = 0; h < problem.num_heads; ++h) {
      q.push_back(decode_vector(codes + static_cast<std::ptrdiff_t>(h) * kDim));
      weight.push_back(static_cast<double>(problem.weights[row * problem.weights_stride + h]));
    }
  }

  /// `active`: how often each head fires on hard keys.
  void plan(int screen_rows, const std::vector<double>& active) {
    choose(screen_rows - 2, active);
    guard = GuardTerms{};
    project();
    aggregate();
    double sizes = allowance;
    for (std::size_t h = 0; h < q.size(); ++h) {
      sizes += (std::abs(weight[h]) + std::abs(folded[h])) * norm(q[h]);
    }
    guard.sums = 0x1p-18 * sizes;
  }

 private:
  void choose(int most, const std::vector<double>& active) {
    retained.clear();
    projected.clear();
    aggregated.clear();
    const auto positives =
        std::count_if(weight.begin(), weight.end(), [](double w) { return w > 0; });
    const bool all = positives <= most;
    std::vector<double> priority(q.size(), -1.0);
    for (std::size_t h = 0; h < q.size(); ++h) {
      const double strength = std::abs(weight[h]) * norm(q[h]);
      if (weight[h] > 0) priority[h] = all ? INFINITY : strength;
      if (weight[h] < 0 && all) priority[h] = strength * std::min(active[h], 1 - active[h]);
    }
    std::vector<int> order(q.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return priority[static_cast<std::size_t>(a)] > priority[static_cast<std::size_t>(b)];
    });
    folded.assign(q.size(), 0.0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto h = static_cast<std::size_t>(order[i]);
      if (priority[h] >= 0 && static_cast<int>(i) < most) {
        retained.push_back(order[i]);
        folded[h] = weight[h];
      } else if (weight[h] > 0) {
        projected.push_back(order[i]);
      } else if (weight[h] < 0 && active[h] >= 0.5) {
        aggregated.push_back(order[i]);
      }
    }
  }

  /// S11, X(k) <= n(k) / 5.
  static double single(const Vector& a) {
    double weighted = 0.0;
    for (int t = 0; t < 3; ++t) weighted += (3 - t) * (3 - t) * dot(a, a, 32 * t, 32 * (t + 1));
    return kUnit * (33 * std::sqrt(weighted) + norm(a) + 128.0 / 5 * power(a));
  }

  /// S9 with |k| for every partial length and constants for the largest key entry, on |k| = 1790.
  static double plain(const Vector& a) {
    return kUnit * (100 * norm(a) + 127 * 448.0 / 1790 * largest(a));
  }

  static double bridges(const Vector& a, const Vector& b) {
    float prefix[4];
    for (int t = 0; t < 4; ++t) prefix[t] = static_cast<float>(dot(a, b, 0, 32 * (t + 1)));
    return static_cast<double>(sm90_bridge_sum(prefix));
  }

  void project() {
    double triangle = 0.0;
    std::vector<Vector> rests;
    for (const int i : projected) {
      const auto h = static_cast<std::size_t>(i);
      double gain = 0.0;
      int anchor = -1;
      for (const int j : retained) {
        const double along =
            dot(q[h], q[static_cast<std::size_t>(j)]) / norm(q[static_cast<std::size_t>(j)]);
        if (along > gain) gain = along, anchor = j;
      }
      Vector rest = q[h];
      guard.projected += weight[h] * single(q[h]);
      if (anchor >= 0) {
        const Vector& to = q[static_cast<std::size_t>(anchor)];
        const double beta = gain / norm(to);
        for (std::size_t d = 0; d < kDim; ++d) rest[d] -= beta * to[d];
        folded[static_cast<std::size_t>(anchor)] += weight[h] * beta;
        guard.projected += weight[h] * beta * single(to);
      }
      for (double& value : rest) value *= weight[h];
      triangle += norm(rest);
      rests.push_back(rest);
    }
    double joint = 0.0;
    for (const Vector& a : rests) {
      for (const Vector& b : rests) joint += std::max(dot(a, b), 0.0);
    }
    allowance = std::min(triangle, std::sqrt(joint));
  }

  /// The nearest e4m3 multiples of a power of two; `rest` becomes what they leave.
  static Vector peel(Vector& rest, double& scale) {
    double most = 0.0;
    for (const double value : rest) most = std::max(most, std::abs(value));
    Vector row{};
    scale = most > 0 ? std::exp2(std::floor(std::log2(most)) - 7) : 0.0;
    if (scale == 0.0) return row;
    for (std::size_t d = 0; d < kDim; ++d) {
      const double wanted = rest[d] / scale;
      const double unit = std::exp2(
          std::max(wanted == 0 ? -6.0 : std::floor(std::log2(std::abs(wanted))), -6.0) - 3);
      row[d] = std::nearbyint(wanted / unit) * unit;
      rest[d] -= scale * row[d];
    }
    return row;
  }

  void aggregate() {
    Vector rest{};
    double squares = 0.0;
    double sizes = 0.0;
    double powers = 0.0;
    for (const int i : aggregated) {
      const auto g = static_cast<std::size_t>(i);
      for (std::size_t d = 0; d < kDim; ++d) rest[d] -= weight[g] * q[g][d];
      sizes -= weight[g] * norm(q[g]);
      powers -= weight[g] * power(q[g]);
      guard.singly -= weight[g] * plain(q[g]);
      for (const int j : aggregated) {
        const auto h = static_cast<std::size_t>(j);
        squares += weight[g] * weight[h] * bridges(q[g], q[h]);
      }
    }
    guard.heads = kUnit * (33 * std::sqrt(squares) + 0.5 * sizes + 128.0 / 5 * powers);
    double scale[2];
    const Vector first = peel(rest, scale[0]);
    const Vector second = peel(rest, scale[1]);
    const double left = norm(rest);
    const double half = scale[1] * norm(second);
    guard.rows =
        scale[0] * kUnit *
            (33 * std::sqrt(bridges(first, first)) + 0.5 * norm(first) + 128.0 / 5 * power(first)) +
        scale[1] * single(second) + left + kShare * (half + left);
    guard.singly += scale[0] * plain(first) + scale[1] * plain(second) + left;
  }
};

}  // namespace dosa::bench

#endif  // DOSA_BENCH_GUARDS_SM90_ROW_HPP
