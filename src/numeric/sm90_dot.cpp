// SPDX-License-Identifier: Apache-2.0
#include "numeric/sm90_dot.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "numeric/e4m3.hpp"
#include "numeric/outward.hpp"

namespace dosa {
namespace {

constexpr int kMaxCachedDim = 256;
constexpr double kLastBit = 0x1p-13;  // the last kept fraction bit, relative to the largest term

/// A vector decoded once: the loops over it have no branch and vectorise.
struct Decoded {
  std::array<std::int32_t, kMaxCachedDim> significand;
  std::array<std::int32_t, kMaxCachedDim> exponent;
  bool invalid = false;
};

void decode(const std::uint8_t* codes, int dim, Decoded& out) {
  out.invalid = false;
  for (int d = 0; d < dim; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const Sm90Parts parts = e4m3_parts(codes[d]);
    out.significand[at] = parts.significand;
    out.exponent[at] = parts.exponent;
    out.invalid = out.invalid || e4m3_is_nan(codes[d]);
  }
}

std::uint32_t decoded_step(const Decoded& a, const Decoded& b, std::size_t from,
                           std::uint32_t accumulator) {
  std::int32_t exponents[kSm90StepLength];
  const Sm90Parts start = sm90_accumulator_parts(accumulator);
  std::int32_t top = start.exponent;
  for (std::size_t i = 0; i < kSm90StepLength; ++i) {
    exponents[i] = a.exponent[from + i] + b.exponent[from + i];
    top = std::max(top, exponents[i]);
  }
  std::int32_t sum =
      sm90_truncate(start.significand, top - start.exponent + 23 - kSm90FractionBits);
  for (std::size_t i = 0; i < kSm90StepLength; ++i) {
    const std::int32_t product = a.significand[from + i] * b.significand[from + i] * 128;
    const std::int32_t kept = std::abs(product) >> std::min(top - exponents[i], 31);
    sum += product < 0 ? -kept : kept;
  }
  return sm90_pack(sum, top);
}

}  // namespace

Sm90Reach sm90_reach(const std::uint8_t* x, int dim) {
  // Squares of multiples of 2^-9: at most 2^36 units of 2^-18 each, so every sum here is exact.
  std::int64_t prefix = 0;
  std::int64_t weighted = 0;
  std::int32_t largest = 1 << 3;  // 2^-6 in units of 2^-9
  for (int start = 0; start < dim; start += kSm90StepLength) {
    weighted += prefix;  // counts |x_1..32t|^2 once for each t < T
    for (int d = start; d < start + kSm90StepLength; ++d) {
      const std::int64_t units = e4m3_units(x[d]);
      prefix += units * units;
      largest = std::max(largest, static_cast<std::int32_t>(std::abs(units)));
    }
  }
  Sm90Reach reach;
  reach.top = static_cast<double>(std::bit_floor(static_cast<std::uint32_t>(largest))) * 0x1p-9;
  reach.reach = outward(std::sqrt(static_cast<double>(weighted))) * 0x1p-9;
  reach.norm = outward(std::sqrt(static_cast<double>(prefix))) * 0x1p-9;
  return reach;
}

double sm90_error_bound(const Sm90Reach& a, const Sm90Reach& b, int dim) {
  const int steps = dim / kSm90StepLength;
  const double units = (kSm90StepLength * steps - 1) * a.top * b.top +
                       (kSm90StepLength + 1) * a.reach * b.reach + a.norm * b.norm;
  return outward(units * kLastBit);
}

void sm90_head_dots(const std::uint8_t* q, const std::uint8_t* k, int heads, int dim, float* dots) {
  if (dim > kMaxCachedDim) {
    for (int h = 0; h < heads; ++h) {
      dots[h] =
          std::bit_cast<float>(sm90_dot_bits(q + static_cast<std::ptrdiff_t>(h) * dim, k, dim));
    }
    return;
  }
  Decoded key;
  Decoded query;
  decode(k, dim, key);
  for (int h = 0; h < heads; ++h) {
    decode(q + static_cast<std::ptrdiff_t>(h) * dim, dim, query);
    std::uint32_t accumulator = 0;
    for (int start = 0; start < dim; start += kSm90StepLength) {
      accumulator = decoded_step(query, key, static_cast<std::size_t>(start), accumulator);
    }
    dots[h] = std::bit_cast<float>(query.invalid || key.invalid ? kSm90NanBits : accumulator);
  }
}

}  // namespace dosa
