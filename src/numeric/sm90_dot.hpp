// SPDX-License-Identifier: Apache-2.0
//
// The FP8 tensor-core product of sm_90 as integer arithmetic, bit for bit (docs/numerics-sm90.md).
// The same source runs on the host (oracle of the `sm90` score model) and inside the device probe
// that compares it with the hardware; hence constexpr, no library call, no CUDA header.
#ifndef DOSA_NUMERIC_SM90_DOT_HPP
#define DOSA_NUMERIC_SM90_DOT_HPP

#include <cstdint>

#ifdef __CUDACC__
#define DOSA_HOST_DEVICE __host__ __device__
#else
#define DOSA_HOST_DEVICE
#endif

namespace dosa {

/// Products that one k-step of wgmma m64nNk32 adds in one go.
inline constexpr int kSm90StepLength = 32;
/// Fraction bits kept below the largest exponent of a k-step, and in its result (S1, S4).
inline constexpr int kSm90FractionBits = 13;
/// What the hardware returns for an invalid operand: a quiet NaN with every payload bit set.
inline constexpr std::uint32_t kSm90NanBits = 0x7fffffffU;

/// Below the exponent of every product and accumulator: zeros take no part in the alignment (S1).
inline constexpr std::int32_t kSm90ZeroExponent = -512;

/// A number as the adder sees it. Its scale is stated where it is made.
struct Sm90Parts {
  std::int32_t significand;  // signed
  std::int32_t exponent;     // of the leading position, or kSm90ZeroExponent
};

/// A finite code as significand * 2^(exponent - 3), |significand| <= 15; subnormals keep -6.
[[nodiscard]] DOSA_HOST_DEVICE constexpr Sm90Parts e4m3_parts(std::uint8_t code) {
  const std::int32_t field = (code >> 3) & 0xf;
  const std::int32_t low = code & 0x7;
  if (field == 0 && low == 0) return {0, kSm90ZeroExponent};
  const std::int32_t magnitude = field == 0 ? low : low + 8;
  return {(code & 0x80U) != 0 ? -magnitude : magnitude, (field == 0 ? 1 : field) - 7};
}

/// |value| * 2^-shift truncated toward zero, with the sign of value.
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::int32_t sm90_truncate(std::int32_t value,
                                                                    std::int32_t shift) {
  if (shift > 30) return 0;
  return value < 0 ? -(-value >> shift) : value >> shift;
}

/// sum * 2^(exponent - 13) as fp32 bits, truncated toward zero to 13 fraction bits (S4).
/// Needs a normal result: every nonzero sum of a chain that starts at zero is at least 2^-25.
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::uint32_t sm90_pack(std::int32_t sum,
                                                                 std::int32_t exponent) {
  if (sum == 0) return 0;
  const std::uint32_t sign = sum < 0 ? 0x80000000U : 0U;
  std::uint32_t magnitude = static_cast<std::uint32_t>(sum < 0 ? -sum : sum);
  while (magnitude >= (2U << kSm90FractionBits)) {
    magnitude >>= 1;
    ++exponent;
  }
  while (magnitude < (1U << kSm90FractionBits)) {
    magnitude <<= 1;
    --exponent;
  }
  const std::uint32_t fraction = (magnitude << (23 - kSm90FractionBits)) & 0x7fffffU;
  return sign | (static_cast<std::uint32_t>(exponent + 127) << 23) | fraction;
}

/// The accumulator as significand * 2^(exponent - 23); subnormals count as zero.
[[nodiscard]] DOSA_HOST_DEVICE constexpr Sm90Parts sm90_accumulator_parts(std::uint32_t bits) {
  const auto field = static_cast<std::int32_t>((bits >> 23) & 0xffU);
  if (field == 0) return {0, kSm90ZeroExponent};
  const auto magnitude = static_cast<std::int32_t>((bits & 0x7fffffU) | 0x800000U);
  return {(bits & 0x80000000U) != 0 ? -magnitude : magnitude, field - 127};
}

/// Returns one k-step: accumulator + sum of 32 products, as the tensor core computes it (S1-S4).
/// Shapes:   a (32,) e4m3; b (32,) e4m3; accumulator bits of an fp32 below 2^127, or NaN
/// Guarantee: equals the hardware bit for bit on every input tried (docs/numerics-sm90.md)
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::uint32_t sm90_step(const std::uint8_t* a,
                                                                 const std::uint8_t* b,
                                                                 std::uint32_t accumulator) {
  bool invalid = (accumulator & 0x7f800000U) == 0x7f800000U;
  const Sm90Parts start = sm90_accumulator_parts(accumulator);
  std::int32_t top = start.exponent;
  for (int i = 0; i < kSm90StepLength; ++i) {
    invalid = invalid || (a[i] & 0x7fU) == 0x7fU || (b[i] & 0x7fU) == 0x7fU;
    const std::int32_t exponent = e4m3_parts(a[i]).exponent + e4m3_parts(b[i]).exponent;
    top = exponent > top ? exponent : top;
  }
  if (invalid) return kSm90NanBits;

  std::int32_t sum =
      sm90_truncate(start.significand, top - start.exponent + 23 - kSm90FractionBits);
  for (int i = 0; i < kSm90StepLength; ++i) {
    const Sm90Parts x = e4m3_parts(a[i]);
    const Sm90Parts y = e4m3_parts(b[i]);
    // A product of significands has 6 fraction bits; 13 - 6 = 7 more are kept.
    const std::int32_t product = x.significand * y.significand * 128;
    sum += sm90_truncate(product, top - x.exponent - y.exponent);
  }
  return sm90_pack(sum, top);
}

/// Returns the fp32 bits of q . k as the dense kernel's chain of k-steps computes it (S5).
/// Shapes:   a (dim,) e4m3; b (dim,) e4m3; dim a positive multiple of 32
/// Guarantee: symmetric in a and b; independent of tile width, row and column
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::uint32_t sm90_dot_bits(const std::uint8_t* a,
                                                                     const std::uint8_t* b,
                                                                     int dim) {
  std::uint32_t accumulator = 0;
  for (int start = 0; start < dim; start += kSm90StepLength) {
    accumulator = sm90_step(a + start, b + start, accumulator);
  }
  return accumulator;
}

/// What the error bound needs to know about one vector; every member is rounded up.
struct Sm90Reach {
  double top = 0;    // X(x): max(2^-6, largest |x_d|), cut to a power of two
  double reach = 0;  // sqrt(sum over t < T of |x_1..32t|^2): R of S9
  double norm = 0;   // |x|
};

/// Returns the reach of x (NaN codes count as 0). dim is a multiple of 32.
[[nodiscard]] Sm90Reach sm90_reach(const std::uint8_t* x, int dim);

/// Returns a bound on |computed - exact| of the product of two vectors of the same dim (S9).
[[nodiscard]] double sm90_error_bound(const Sm90Reach& a, const Sm90Reach& b, int dim);

/// Returns the products of one key with every head, bit-equal to sm90_dot_bits.
/// Shapes:   q (H, dim) e4m3; k (dim,) e4m3 -> dots (H,) fp32
void sm90_head_dots(const std::uint8_t* q, const std::uint8_t* k, int heads, int dim, float* dots);

}  // namespace dosa

#undef DOSA_HOST_DEVICE

#endif  // DOSA_NUMERIC_SM90_DOT_HPP
