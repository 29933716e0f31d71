// SPDX-License-Identifier: Apache-2.0
//
// Counter-based e4m3 inputs for the probe: the same code on host and device, so that a mismatch
// seen on the device can be replayed from (class, seed, tile, row, column) alone.
#ifndef DOSA_GPU_PROBE_INPUTS_CUH
#define DOSA_GPU_PROBE_INPUTS_CUH

#include <cstdint>

namespace dosa::gpu {

enum class InputClass : int {
  kUniform,   // every finite code equally often
  kNormal,    // rounded normal values, as quantised queries and keys are
  kHeavy,     // exponents geometrically distributed
  kCancel,    // products pair up with opposite signs, some one code apart
  kCliff,     // one or two peaks, the rest at a chosen distance in exponent
  kSmall,     // subnormals and the lowest binade, few large codes
  kSparse,    // mostly zeros of both signs
  kExtreme,   // the largest codes, random or equal signs
  kPositive,  // sums that only grow
  kRamp,      // magnitude rises or falls from k-step to k-step
  kReach,     // a large first k-step, then products just below the last kept bit
  kInvalid    // uniform with rare NaN codes
};
inline constexpr int kInputClasses = 12;

__host__ __device__ constexpr const char* input_class_name(int c) {
  constexpr const char* kNames[kInputClasses] = {"uniform",  "normal", "heavy",  "cancel",
                                                 "cliff",    "small",  "sparse", "extreme",
                                                 "positive", "ramp",   "reach",  "invalid"};
  return kNames[c];
}

/// Which tile of which stream is meant; side 0 is operand A, side 1 operand B.
struct TileKey {
  std::uint64_t seed;
  std::uint64_t tile;
  InputClass input;
};

__host__ __device__ constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

__host__ __device__ constexpr std::uint64_t hash_words(std::uint64_t a, std::uint64_t b,
                                                       std::uint64_t c) {
  return mix_bits(mix_bits(mix_bits(a + 0x9e3779b97f4a7c15ULL) + b) + c);
}

/// Nearest e4m3 magnitude (ties up) of a value given in units of 2^-9; saturates at 448.
__host__ __device__ constexpr std::uint8_t encode_units(std::uint32_t units) {
  if (units < 8) return static_cast<std::uint8_t>(units);
  int shift = 0;
  while ((units >> shift) >= 16) ++shift;
  std::uint32_t rounded = shift == 0 ? units : (units + (1U << (shift - 1))) >> shift;
  if (rounded == 16) {
    rounded = 8;
    ++shift;
  }
  const std::uint32_t code = (static_cast<std::uint32_t>(shift + 1) << 3) | (rounded & 7U);
  return static_cast<std::uint8_t>(code > 0x7eU ? 0x7eU : code);
}

__host__ __device__ constexpr std::uint8_t finite_code(std::uint64_t h) {
  const auto code = static_cast<std::uint8_t>(h & 0xffU);
  return (code & 0x7fU) == 0x7fU ? static_cast<std::uint8_t>(code - 1) : code;
}

__host__ __device__ constexpr std::uint8_t normal_code(std::uint64_t h, std::uint64_t row_hash) {
  std::int32_t sum = -8 * 32768;
  for (int i = 0; i < 8; ++i) {
    h = mix_bits(h + 0x632be59bd9b4e019ULL);
    sum += static_cast<std::int32_t>(h & 0xffffU);
  }
  const std::uint32_t magnitude = static_cast<std::uint32_t>(sum < 0 ? -sum : sum);
  const auto code = encode_units(magnitude >> (row_hash % 10));
  return static_cast<std::uint8_t>(code | (sum < 0 ? 0x80U : 0U));
}

/// Exponent field top - drop (at least 0) with a random significand and sign.
__host__ __device__ constexpr std::uint8_t coded(int top, int drop, std::uint64_t h) {
  const int field = top - drop < 0 ? 0 : top - drop;
  auto code = static_cast<std::uint32_t>((field << 3) | static_cast<int>(h & 7U));
  if (code == 0x7fU) code = 0x7eU;
  return static_cast<std::uint8_t>(code | ((h >> 3 & 1U) << 7));
}

__host__ __device__ constexpr int geometric(std::uint64_t h, int limit) {
  int n = 0;
  while (n < limit && (h >> n & 1U) != 0) ++n;
  return n;
}

__host__ __device__ constexpr std::uint8_t cancel_code(const TileKey& key, int side, int row,
                                                       int k) {
  const int partner_bit = 1 << (key.tile % 7);
  const int base = k & ~partner_bit;
  const std::uint64_t h = hash_words(key.seed ^ key.tile * 2 ^ 0x5bd1U, side * 4096 + row, base);
  std::uint32_t code = coded(15, geometric(h >> 8, 14), h);
  const std::uint64_t own = hash_words(key.seed, key.tile * 8 + side, row * 512 + k);
  if (k != base && side == 1) code ^= 0x80U;
  if (own % 16 == 0 && (code & 0x7fU) > 0) --code;
  return static_cast<std::uint8_t>(code);
}

__host__ __device__ constexpr std::uint8_t cliff_code(const TileKey& key, int side, int row, int k,
                                                      std::uint64_t h) {
  const std::uint64_t tile_hash = hash_words(key.seed, key.tile, 77);
  const int peak = static_cast<int>(tile_hash % 128);
  const int second = static_cast<int>(tile_hash >> 8) & 127;
  const int distance = static_cast<int>(tile_hash >> 16) & 15;
  const std::uint64_t row_hash = hash_words(key.seed + 1, key.tile * 2 + side, row);
  const int top = 15 - static_cast<int>(row_hash % 3);
  if (k == peak) return coded(top, 0, row_hash >> 8);
  if (k == second && (tile_hash >> 24 & 1U) != 0) {
    return static_cast<std::uint8_t>(coded(top, 0, row_hash >> 8) ^ (side == 1 ? 0x80U : 0U));
  }
  return coded(top, (distance + static_cast<int>(h >> 32 & 1U)) / 2 + static_cast<int>(h >> 33) % 2,
               h);
}

/// Equal powers of two fill the first k-step to 2^(5 + i + j); the last kept bit is then
/// 2^(i + j - 8), and 1.125 x 1.75 x 2^(i + j - 9) stays just below it.
__host__ __device__ constexpr std::uint8_t reach_code(const TileKey& key, int side, int k,
                                                      std::uint64_t h, std::uint64_t row_hash) {
  const int field = 7 + static_cast<int>(row_hash % 9);
  if (k < 32) return static_cast<std::uint8_t>(field << 3);
  const std::uint32_t sign = side == 0 && (key.tile & 1U) != 0 ? 0x80U : 0U;
  if ((key.tile & 2U) != 0 && h % 16 == 0) return finite_code(h >> 8) & 0xbfU;
  const int low = side == 0 ? (field - 4) * 8 + 1 : (field - 5) * 8 + 6;
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(low) | sign);
}

/// The code at (row, k) of one operand of a tile.
__host__ __device__ constexpr std::uint8_t input_code(const TileKey& key, int side, int row,
                                                      int k) {
  const std::uint64_t h = hash_words(key.seed, key.tile * 2 + side, row * 512 + k);
  const std::uint64_t row_hash = hash_words(key.seed + 1, key.tile * 2 + side, row);
  switch (key.input) {
    case InputClass::kUniform:
      return finite_code(h);
    case InputClass::kNormal:
      return normal_code(h, row_hash);
    case InputClass::kHeavy:
      return coded(15 - static_cast<int>(row_hash % 4), geometric(h >> 8, 14), h);
    case InputClass::kCancel:
      return cancel_code(key, side, row, k);
    case InputClass::kCliff:
      return cliff_code(key, side, row, k, h);
    case InputClass::kSmall:
      return (h >> 16) % 32 == 0 ? finite_code(h) : static_cast<std::uint8_t>(h & 0x8fU);
    case InputClass::kSparse:
      return (h >> 16) % 8 != 0 ? static_cast<std::uint8_t>(h & 0x80U) : finite_code(h);
    case InputClass::kExtreme: {
      const std::uint32_t sign = (key.tile & 1U) != 0 ? 0U : static_cast<std::uint32_t>(h & 0x80U);
      return static_cast<std::uint8_t>(sign | (0x7eU - (h >> 16) % (1 + row_hash % 6)));
    }
    case InputClass::kPositive:
      return coded(15, geometric(h >> 8, static_cast<int>(row_hash % 15)), h) & 0x7fU;
    case InputClass::kRamp: {
      const int step = (k / 32) & 3;
      const int slope = static_cast<int>(key.tile / 2 % 4) + 1;
      return coded(15, slope * ((key.tile & 1U) != 0 ? step : 3 - step) + geometric(h >> 8, 2), h);
    }
    case InputClass::kReach:
      return reach_code(key, side, k, h, row_hash);
    case InputClass::kInvalid:
      return (h >> 16) % 4096 == 0 ? static_cast<std::uint8_t>(h | 0x7fU) : finite_code(h);
  }
  return 0;
}

/// An fp32 accumulator to start from: zero, 13 or 23 fraction bits, exponents -24 .. 19.
__host__ __device__ constexpr std::uint32_t input_accumulator(const TileKey& key, int row,
                                                              int column) {
  const std::uint64_t h = hash_words(key.seed + 2, key.tile, row * 512 + column);
  const auto kind = static_cast<int>(h & 3U);
  if (kind == 0) return 0;
  const auto exponent = static_cast<std::uint32_t>(127 - 24 + static_cast<int>((h >> 8) % 44));
  auto fraction = static_cast<std::uint32_t>(h >> 32) & 0x7fffffU;
  if (kind == 1) fraction &= ~0x3ffU;
  return static_cast<std::uint32_t>(h >> 16 & 1U) << 31 | exponent << 23 | fraction;
}

}  // namespace dosa::gpu

#endif  // DOSA_GPU_PROBE_INPUTS_CUH
