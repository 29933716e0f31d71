// SPDX-License-Identifier: Apache-2.0
//
// The dot products of mma.sync as integer arithmetic (docs/numerics-mma.md). The adder's sizes are
// parameters, because they differ from card to card. The same source runs on the host and in the
// device test that compares it with the hardware; hence constexpr, no library call, no CUDA header.
#ifndef DOSA_NUMERIC_MMA_DOT_HPP
#define DOSA_NUMERIC_MMA_DOT_HPP

#include <cstdint>

#ifdef __CUDACC__
#define DOSA_HOST_DEVICE __host__ __device__
#else
#define DOSA_HOST_DEVICE
#endif

namespace dosa {

/// One sum of the adder: `group` products and the accumulator, aligned to the largest exponent,
/// each cut toward zero `kept_bits` below it; the sum is cut to `result_bits` fraction bits of its
/// own.
struct MmaAdder {
  int group;          // products of one sum: a divisor of `instruction`
  int kept_bits;      // at most 25
  int result_bits;    // at most 23
  int instruction;    // coordinates of one instruction: 16 (fp16) or 32 (e4m3)
  bool paired;        // coordinates 0, 1 mod 4 come before 2, 3 mod 4 (src/gpu/operands_mma.cuh)
  bool own_exponent;  // subnormal codes count with their true exponent: they are normal in fp16
};

/// fp16 products on sm_90: measured.
inline constexpr MmaAdder kMmaF16Sm90{16, 25, 23, 16, true, true};
/// e4m3 products of sm_89 as they are published; the model of wgmma on sm_90. Never measured here.
inline constexpr MmaAdder kMmaFp8Published{32, 13, 13, 32, false, false};

/// What both functions return for an invalid operand.
inline constexpr std::uint32_t kMmaNanBits = 0x7fffffffU;

/// A finite number as significand * 2^(exponent - scale); the scale is stated where it is made.
struct MmaParts {
  std::int64_t significand;  // signed; 0 takes no part in the alignment
  std::int32_t exponent;
};

/// A finite code with scale 3.
[[nodiscard]] DOSA_HOST_DEVICE constexpr MmaParts mma_code_parts(std::uint8_t code,
                                                                 bool own_exponent) {
  const std::int32_t field = (code >> 3) & 0xf;
  std::int64_t size = field == 0 ? code & 0x7 : (code & 0x7) + 8;
  std::int32_t exponent = (field == 0 ? 1 : field) - 7;
  while (own_exponent && size != 0 && size < 8) {
    size *= 2;
    --exponent;
  }
  return {(code & 0x80U) != 0 ? -size : size, exponent};
}

/// value / 2^shift, cut toward zero.
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::int64_t mma_cut(std::int64_t value,
                                                              std::int32_t shift) {
  if (value == 0) return 0;
  if (shift <= 0) return value * (std::int64_t{1} << -shift);
  if (shift > 62) return 0;
  return value < 0 ? -(-value >> shift) : value >> shift;
}

/// sum * 2^(exponent - kept_bits) as fp32 bits, cut toward zero to result_bits fraction bits.
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::uint32_t mma_pack(const MmaAdder& adder,
                                                                std::int64_t sum,
                                                                std::int32_t exponent) {
  if (sum == 0) return 0;
  auto size = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  exponent += adder.result_bits - adder.kept_bits;  // of a significand with result_bits
  while (size >= (std::uint64_t{2} << adder.result_bits)) {
    size >>= 1;
    ++exponent;
  }
  while (size < (std::uint64_t{1} << adder.result_bits)) {
    size <<= 1;
    --exponent;
  }
  const auto fraction = static_cast<std::uint32_t>(size << (23 - adder.result_bits)) & 0x7fffffU;
  const std::uint32_t sign = sum < 0 ? 0x80000000U : 0U;
  return sign | (static_cast<std::uint32_t>(exponent + 127) << 23) | fraction;
}

/// Coordinate of the i-th product of a chain.
[[nodiscard]] DOSA_HOST_DEVICE constexpr int mma_coordinate(const MmaAdder& adder, int i) {
  const int place = i % adder.instruction;
  if (!adder.paired) return i;
  const int half = adder.instruction / 2;
  return i - place + place % half / 2 * 4 + place / half * 2 + place % 2;
}

/// Returns the fp32 bits of a . b as a chain of instructions computes it, from zero on.
/// Shapes:   a (dim,) e4m3; b (dim,) e4m3; dim a positive multiple of adder.instruction
[[nodiscard]] DOSA_HOST_DEVICE constexpr std::uint32_t mma_dot_bits(const MmaAdder& adder,
                                                                    const std::uint8_t* a,
                                                                    const std::uint8_t* b,
                                                                    int dim) {
  constexpr std::int32_t kNoExponent = -512;
  std::uint32_t bits = 0;
  bool invalid = false;
  for (int start = 0; start < dim; start += adder.group) {
    const auto field = static_cast<std::int32_t>((bits >> 23) & 0xffU);
    const auto size = static_cast<std::int64_t>((bits & 0x7fffffU) | 0x800000U);
    const MmaParts from{field == 0 ? 0 : ((bits & 0x80000000U) != 0 ? -size : size), field - 127};
    std::int32_t top = from.significand == 0 ? kNoExponent : from.exponent;
    for (int i = start; i < start + adder.group; ++i) {
      const int at = mma_coordinate(adder, i);
      invalid = invalid || (a[at] & 0x7fU) == 0x7fU || (b[at] & 0x7fU) == 0x7fU;
      const MmaParts x = mma_code_parts(a[at], adder.own_exponent);
      const MmaParts y = mma_code_parts(b[at], adder.own_exponent);
      const bool counts = x.significand != 0 && y.significand != 0;
      if (counts && x.exponent + y.exponent > top) top = x.exponent + y.exponent;
    }
    std::int64_t sum = mma_cut(from.significand, top - from.exponent + 23 - adder.kept_bits);
    for (int i = start; i < start + adder.group; ++i) {
      const int at = mma_coordinate(adder, i);
      const MmaParts x = mma_code_parts(a[at], adder.own_exponent);
      const MmaParts y = mma_code_parts(b[at], adder.own_exponent);
      sum += mma_cut(x.significand * y.significand,
                     top - x.exponent - y.exponent + 6 - adder.kept_bits);
    }
    bits = mma_pack(adder, sum, top);
  }
  return invalid ? kMmaNanBits : bits;
}

}  // namespace dosa

#undef DOSA_HOST_DEVICE

#endif  // DOSA_NUMERIC_MMA_DOT_HPP
