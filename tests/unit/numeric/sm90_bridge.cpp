// SPDX-License-Identifier: Apache-2.0
// S11 to S16 of docs/numerics-sm90.md: partial sums against their end, and what the tensor core's
// rounding can add to a certificate, on inputs that come close.
#include "numeric/sm90_bridge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "numeric/e4m3.hpp"
#include "numeric/sm90_dot.hpp"

namespace dosa::test {
namespace {

constexpr std::size_t kDim = 128;
constexpr std::size_t kStep = 32;
constexpr double kUnit = 0x1p-13;
constexpr double kShare = kUnit * (33 * static_cast<double>(kSm90BridgeShare) + 1);

using Vector = std::vector<double>;
using Codes = std::vector<std::uint8_t>;

struct Head {
  double weight = 1.0;
  Vector q;
};

double dot(const Vector& a, const Vector& b, std::size_t count = kDim) {
  double sum = 0.0;
  for (std::size_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

double norm(const Vector& a) { return std::sqrt(dot(a, a)); }

float bridges(const Vector& a, const Vector& b) {
  float prefix[4];
  for (std::size_t t = 0; t < 4; ++t) {
    prefix[t] = static_cast<float>(dot(a, b, kStep * (t + 1)));
  }
  return sm90_bridge_sum(prefix);
}

/// J of S13.
double joint(const std::vector<Head>& heads) {
  double squares = 0.0;
  double sizes = 0.0;
  for (const Head& g : heads) {
    sizes += g.weight * norm(g.q);
    for (const Head& h : heads) {
      squares += g.weight * h.weight * static_cast<double>(bridges(g.q, h.q));
    }
  }
  return std::sqrt(squares + 0x1p-16 * sizes * sizes);
}

/// sum of omega (|x_1| + |x_2| + |x_3|) over the heads with x > 0.
double partial_sums(const std::vector<Head>& heads, const Vector& k) {
  double sum = 0.0;
  for (const Head& head : heads) {
    if (dot(head.q, k) <= 0.0) continue;
    for (std::size_t t = 1; t < 4; ++t) {
      sum += head.weight * std::abs(dot(head.q, k, kStep * t));
    }
  }
  return sum;
}

double positive_parts(const std::vector<Head>& heads, const Vector& k) {
  double sum = 0.0;
  for (const Head& head : heads) sum += head.weight * std::max(dot(head.q, k), 0.0);
  return sum;
}

Vector normal_vector(std::mt19937_64& random, double size) {
  std::normal_distribution<double> normal(0.0, size);
  Vector vector(kDim);
  for (double& value : vector) value = normal(random);
  return vector;
}

/// Heads around one direction: `spread` is the share of their own.
std::vector<Head> random_heads(std::mt19937_64& random, std::size_t count, double spread) {
  const Vector common = normal_vector(random, 1.0);
  std::vector<Head> heads(count);
  for (Head& head : heads) {
    head.q = normal_vector(random, spread);
    for (std::size_t d = 0; d < kDim; ++d) head.q[d] += common[d];
    head.weight = std::uniform_real_distribution<double>(0.1, 1.0)(random);
  }
  return heads;
}

/// Along the heads' sum with a factor for each k-step.
Vector along(const std::vector<Head>& heads, const double (&factors)[4]) {
  Vector key(kDim);
  for (const Head& head : heads) {
    for (std::size_t d = 0; d < kDim; ++d) key[d] += head.weight * head.q[d] * factors[d / kStep];
  }
  return key;
}

constexpr double kPatterns[][4] = {{1, 1, 1, 1},    {3, 1, -1, -3}, {3, 1, -1, -2.9},
                                   {1, -1, -1, 1},  {-1, 1, 1, 1},  {-3, -1, 1, 3.1},
                                   {1, 1, -1, -.9}, {1, 0, 0, 0},   {0, 0, 0, 1}};

TEST(Sm90Bridge, PartialSumsStayBelowShareAndBridges) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t count = 1 + static_cast<std::size_t>(trial) % 12;
    const std::vector<Head> heads = random_heads(random, count, 0.25 * (trial % 5));
    const double size = joint(heads);
    std::vector<Vector> keys = {normal_vector(random, 1.0)};
    for (const auto& factors : kPatterns) keys.push_back(along(heads, factors));
    for (const Vector& key : keys) {
      EXPECT_LE(
          partial_sums(heads, key),
          static_cast<double>(kSm90BridgeShare) * positive_parts(heads, key) + size * norm(key));
    }
  }
}

TEST(Sm90Bridge, ShareAndBridgesAreBothNeeded) {
  const std::vector<Head> heads = {{1.0, Vector(kDim, 1.0)}};
  const double size = joint(heads);
  // A dot product that only grows: its partial sums are 1/4, 1/2 and 3/4 of it.
  const Vector even(kDim, 1.0);
  EXPECT_GT(partial_sums(heads, even), size * norm(even));
  // One that comes back to next to nothing: the bridges are all there is, and nearly attained.
  const Vector back = along(heads, {3, 1, -1, -2.999});
  const double share = static_cast<double>(kSm90BridgeShare) * positive_parts(heads, back);
  EXPECT_GT(partial_sums(heads, back), 0.99 * (share + size * norm(back)));
  EXPECT_GT(partial_sums(heads, back), share);
}

TEST(Sm90Bridge, SumMayOnlyBeLowByItsOwnRoundings) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 1000; ++trial) {
    const Vector a = normal_vector(random, 1.0);
    const Vector b = normal_vector(random, 1.0);
    double exact = 0.0;
    for (std::size_t t = 1; t < 4; ++t) {
      for (std::size_t u = 1; u < 4; ++u) {
        double sum = 0.0;
        for (std::size_t d = 0; d < kDim; ++d) {
          const double first = (d < kStep * t ? 1.0 : 0.0) - 0.25 * static_cast<double>(t);
          const double second = (d < kStep * u ? 1.0 : 0.0) - 0.25 * static_cast<double>(u);
          sum += first * second * a[d] * b[d];
        }
        exact += std::abs(sum);
      }
    }
    EXPECT_GE(static_cast<double>(bridges(a, b)) + 0x1p-16 * norm(a) * norm(b), exact);
    EXPECT_NEAR(static_cast<double>(bridges(a, b)), exact, 0x1p-16 * norm(a) * norm(b));
  }
}

/// The nearest finite code.
std::uint8_t encode(double value) {
  std::uint8_t best = 0;
  for (int code = 0; code < 256; ++code) {
    const auto candidate = static_cast<std::uint8_t>(code);
    if (e4m3_is_nan(candidate)) continue;
    const auto distance = [&](std::uint8_t c) { return std::abs(e4m3_units(c) * 0x1p-9 - value); };
    if (distance(candidate) < distance(best)) best = candidate;
  }
  return best;
}

struct Coded {
  Codes codes;
  Vector values;
  double power = 0x1p-6;  // X
};

Coded coded(const Vector& vector, double largest) {
  double most = 0.0;
  for (const double value : vector) most = std::max(most, std::abs(value));
  Coded result;
  for (const double value : vector) {
    result.codes.push_back(encode(value * largest / most));
    result.values.push_back(e4m3_units(result.codes.back()) * 0x1p-9);
    const double size = std::abs(result.values.back());
    if (size > 0.0) result.power = std::max(result.power, std::exp2(std::floor(std::log2(size))));
  }
  return result;
}

double computed(const Coded& a, const Coded& b) {
  return static_cast<double>(
      std::bit_cast<float>(sm90_dot_bits(a.codes.data(), b.codes.data(), kDim)));
}

/// What the sum of positive parts loses to rounding, over what S13 allows for it.
double used(const std::vector<Head>& heads, const std::vector<Coded>& coded_heads,
            const Coded& key) {
  double lost = 0.0;
  double sizes = 0.0;
  double powers = 0.0;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const double exact = dot(coded_heads[h].values, key.values);
    const double product = computed(coded_heads[h], key);
    lost += heads[h].weight * ((1 - kShare) * std::max(exact, 0.0) - std::max(product, 0.0));
    sizes += heads[h].weight * norm(coded_heads[h].values);
    powers += heads[h].weight * coded_heads[h].power;
  }
  std::vector<Head> rounded = heads;
  for (std::size_t h = 0; h < heads.size(); ++h) rounded[h].q = coded_heads[h].values;
  const double length = norm(key.values);
  return lost /
         (kUnit * (33 * joint(rounded) * length + 0.5 * sizes * length + 128 * powers * key.power));
}

TEST(Sm90Bridge, ComputedPositivePartsLoseNoMoreThanAllowed) {
  std::mt19937_64 random(9);
  double worst = -1.0;
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<Head> heads =
        random_heads(random, 1 + static_cast<std::size_t>(trial) % 6, 0.3 * (trial % 4));
    std::vector<Coded> coded_heads;
    coded_heads.reserve(heads.size());
    for (const Head& head : heads) {
      coded_heads.push_back(coded(head.q, std::exp2(trial % 12 - 3)));
    }
    for (const auto& factors : kPatterns) {
      const Coded key = coded(along(heads, factors), 448.0);
      worst = std::max(worst, used(heads, coded_heads, key));
    }
  }
  EXPECT_LE(worst, 1.0);
}

/// S11 of a vector for this key.
double single(const Coded& a, const Coded& key) {
  double weighted = 0.0;
  double before = 0.0;
  for (std::size_t t = 0; t < 3; ++t) {
    const double prefix = dot(a.values, a.values, kStep * (t + 1));
    weighted += static_cast<double>((3 - t) * (3 - t)) * (prefix - before);
    before = prefix;
  }
  return kUnit * (127 * a.power * key.power +
                  (33 * std::sqrt(weighted) + norm(a.values)) * norm(key.values));
}

/// The nearest e4m3 row times a power of two; `rest` becomes what it leaves.
Coded peel(Vector& rest, double& scale) {
  double most = 0x1p-40;
  for (const double value : rest) most = std::max(most, std::abs(value));
  scale = std::exp2(std::floor(std::log2(most)) - 7);
  Coded row = coded(rest, most / scale);
  for (std::size_t d = 0; d < kDim; ++d) rest[d] -= scale * row.values[d];
  return row;
}

TEST(Sm90Bridge, AggregateStaysBelowTheComputedPositiveParts) {
  std::mt19937_64 random(10);
  int subtracted = 0;
  double closest = 1e300;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Head> heads =
        random_heads(random, 1 + static_cast<std::size_t>(trial) % 6, 0.3 * (trial % 4));
    std::vector<Coded> coded_heads;
    Vector rest(kDim);
    double sizes = 0.0;
    double powers = 0.0;
    for (Head& head : heads) {
      coded_heads.push_back(coded(head.q, 448.0));
      head.q = coded_heads.back().values;
      sizes += head.weight * norm(head.q);
      powers += head.weight * coded_heads.back().power;
      for (std::size_t d = 0; d < kDim; ++d) rest[d] += head.weight * head.q[d];
    }
    double scale[2];
    const Coded first = peel(rest, scale[0]);
    const Coded second = peel(rest, scale[1]);
    const double left = norm(rest);
    for (const auto& factors : kPatterns) {
      const Coded key = coded(along(heads, factors), 448.0);
      const double length = norm(key.values);
      double positive = 0.0;
      for (std::size_t h = 0; h < heads.size(); ++h) {
        positive += heads[h].weight * std::max(computed(coded_heads[h], key), 0.0);
      }
      const auto envelope = [&](double joint_size, double size, double power) {
        return kUnit * (33 * joint_size * length + 0.5 * size * length + 128 * power * key.power);
      };
      const double taken =
          envelope(joint(heads), sizes, powers) +
          scale[0] * envelope(joint({{1.0, first.values}}), norm(first.values), first.power) +
          scale[1] * single(second, key) +
          (left + kShare * (scale[1] * norm(second.values) + left)) * length;
      const double rows = scale[0] * computed(first, key) + scale[1] * computed(second, key);
      const double bound = std::max((1 - 2 * kShare) * rows - taken, 0.0);
      EXPECT_GE(positive, bound);
      subtracted += bound > 0.0 ? 1 : 0;
      if (bound > 0.0) closest = std::min(closest, positive / bound - 1);
    }
  }
  EXPECT_GT(subtracted, 100);
  EXPECT_LT(closest, 0.05);
}

TEST(Sm90Bridge, ExponentsOfTheLargestEntriesAreNeeded) {
  // One product of 1.875 * 1.875 hides 31 of 126/64 * 2^-13 in the first k-step; the others rest.
  Vector q(kDim, 0.0);
  Vector k(kDim, 0.0);
  std::fill_n(q.begin(), kStep, 1.125 * 0x1p-6);
  std::fill_n(k.begin(), kStep, 1.75 * 0x1p-6);
  q[0] = 1.875;
  k[0] = 1.875;
  const Head head{1.0, q};
  const Coded coded_q = coded(q, 1.875);
  const Coded coded_k = coded(k, 1.875);
  EXPECT_EQ(coded_q.power * coded_k.power, 1.0);
  const double lost = dot(coded_q.values, coded_k.values) - computed(coded_q, coded_k);
  EXPECT_GT(lost, 0.0);
  EXPECT_LE(lost, kUnit * 31);  // S8 of one k-step, M = 1
  EXPECT_LE(used({head}, {coded_q}, coded_k), 1.0);
}

}  // namespace
}  // namespace dosa::test
