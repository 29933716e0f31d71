// SPDX-License-Identifier: Apache-2.0
// Quantises new keys and writes them to their slots, as serving engines do when a token arrives.
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/decode_pages.hpp"
#include "engine/threads.hpp"
#include "numeric/float_environment.hpp"

namespace dosa::engine {
namespace {

// The largest e4m3fn value, and the least amax: keys of zeros get a normal scale, too.
constexpr float kLargestCode = 448.0F;
constexpr float kLeastAmax = 1e-4F;

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The least power of two >= scale; scale is normal, or Inf.
float power_of_two_above(float scale) {
  constexpr std::uint32_t kMantissa = 0x7FFFFF;
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return std::bit_cast<float>((bits + kMantissa) & ~kMantissa);
}

/// The e4m3fn code nearest to x, ties to even, saturating; NaN gives a NaN code.
std::uint8_t to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint8_t>(sign | 0x7FU);
  if (magnitude >= 0x43E00000U) return static_cast<std::uint8_t>(sign | 0x7EU);  // 448 and above
  if (magnitude < 0x3C800000U) {  // below 2^-6: multiples of 2^-9, rounded by adding 2^14
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xFU));
  }
  constexpr std::uint32_t kDropped = 20;  // mantissa bits that e4m3 lacks
  constexpr std::uint32_t kBiasGap = (127 - 7) << 3;
  const std::uint32_t even = (magnitude >> kDropped) & 1U;
  const std::uint32_t rounded = (magnitude + 0x7FFFFU + even) >> kDropped;
  return static_cast<std::uint8_t>(sign | (rounded - kBiasGap));
}

void insert_token(const dosa_page_cache& cache, const std::uint16_t* key, std::int64_t slot,
                  dosa_scale_format format) {
  float largest = 0.0F;
  for (int d = 0; d < cache.head_dim; ++d) {
    const float magnitude = std::fabs(from_bf16(key[d]));
    largest = magnitude > largest ? magnitude : largest;  // a NaN is not larger
  }
  float scale = (largest > kLeastAmax ? largest : kLeastAmax) / kLargestCode;
  if (format == DOSA_SCALE_UE8M0) scale = power_of_two_above(scale);
  std::uint8_t* page = cache.pages + slot / cache.page_size * cache.page_stride;
  const std::int64_t place = slot % cache.page_size;
  std::uint8_t* codes = page + place * cache.head_dim;
  for (int d = 0; d < cache.head_dim; ++d) codes[d] = to_e4m3(from_bf16(key[d]) / scale);
  std::memcpy(page + static_cast<std::int64_t>(cache.page_size) * cache.head_dim +
                  place * static_cast<std::int64_t>(sizeof scale),
              &scale, sizeof scale);
}

}  // namespace

void insert(const dosa_paged_insert_problem& problem) {
  // A decode step has a few tokens: waking threads costs more than writing them.
  constexpr std::int64_t kParallelTokens = 512;
  const auto format = static_cast<dosa_scale_format>(problem.scale_format);
#pragma omp parallel num_threads(call_threads(problem.threads)) if (problem.num_tokens >= \
                                                                    kParallelTokens)
  {
    const FloatEnvironment environment;
#pragma omp for schedule(static)
    for (std::int64_t t = 0; t < problem.num_tokens; ++t) {
      const std::int64_t slot = problem.slot_mapping[t];
      if (slot >= 0) insert_token(*problem.cache, problem.k + t * problem.k_stride, slot, format);
    }
  }
}

}  // namespace dosa::engine
