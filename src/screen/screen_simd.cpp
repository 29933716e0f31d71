// SPDX-License-Identifier: Apache-2.0
// Screening with lanes = keys: a pair of query coordinates is broadcast against the transposed
// tile, each lane finishes its key's bound alone, and the comparison yields a bit mask.
#include "numeric/simd.hpp"
#include "screen/screen.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "screen/screen_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/simd_dot-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dosa::screen {
namespace HWY_NAMESPACE {

#if DOSA_SIMD
using namespace ::dosa::HWY_NAMESPACE;

// 2 * kRowChunk accumulators; one key vector serves kRowChunk rows, one broadcast two key vectors.
inline constexpr int kRowChunk = kLanes == 16 ? 8 : 4;

enum class Shape { kClipped, kLinear, kAbsolute };

/// Adds coefficient * shape(X) of kRows rows to the sums of kBlocks blocks of keys.
template <int kRows, int kBlocks>
HWY_INLINE void add_rows(const plan::ScreenOperand& operand, int row, Shape shape,
                         const std::int32_t* HWY_RESTRICT columns, VF (&sum)[kBlocks]) {
  const DI di;
  const DF df;
  const int pairs = operand.head_dim / 2;
  const std::ptrdiff_t block_stride = static_cast<std::ptrdiff_t>(kLanes) * pairs;
  const std::int32_t* HWY_RESTRICT query = operand.pairs + static_cast<std::ptrdiff_t>(row) * pairs;
  VI acc[kRows][kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) acc[r][b] = hn::Zero(di);
  }
  for (int j = 0; j < pairs; ++j) {
    VI key[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      key[b] = hn::Load(di, columns + b * block_stride + j * static_cast<std::ptrdiff_t>(kLanes));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VI pair = hn::Set(di, query[r * pairs + j]);
      for (int b = 0; b < kBlocks; ++b) acc[r][b] = dot_pairs(acc[r][b], pair, key[b]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const VF coefficient = hn::Set(df, operand.coefficient[row + r]);
    for (int b = 0; b < kBlocks; ++b) {
      VF x = hn::ConvertTo(df, acc[r][b]);
      if (shape == Shape::kClipped) x = hn::Max(x, hn::Zero(df));
      if (shape == Shape::kAbsolute) x = hn::Abs(x);
      sum[b] = hn::MulAdd(coefficient, x, sum[b]);
    }
  }
}

/// The last rows of an operand, fewer than kRowChunk: one instantiation each, since splitting them
/// into powers of two costs more than a whole chunk.
template <int kBlocks, int kRows = kRowChunk - 1>
HWY_INLINE void add_last_rows(const plan::ScreenOperand& operand, int row, int rows,
                              const std::int32_t* HWY_RESTRICT columns, VF (&sum)[kBlocks]) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      add_rows<kRows, kBlocks>(operand, row, Shape::kClipped, columns, sum);
    } else {
      add_last_rows<kBlocks, kRows - 1>(operand, row, rows, columns, sum);
    }
  }
}

template <int kBlocks>
HWY_INLINE void add_all_rows(const plan::ScreenOperand& operand,
                             const std::int32_t* HWY_RESTRICT columns, VF (&sum)[kBlocks]) {
  const int clipped = operand.absolute ? operand.rows - 2 : operand.rows;
  int r = 0;
  for (; r + kRowChunk <= clipped; r += kRowChunk) {
    add_rows<kRowChunk, kBlocks>(operand, r, Shape::kClipped, columns, sum);
  }
  add_last_rows<kBlocks>(operand, r, clipped - r, columns, sum);
  if (operand.absolute) {
    add_rows<1, kBlocks>(operand, clipped, Shape::kLinear, columns, sum);
    add_rows<1, kBlocks>(operand, clipped + 1, Shape::kAbsolute, columns, sum);
  }
}

HWY_INLINE VF initial_sum(const plan::ScreenOperand& operand, const plan::KeyTile& tile, int key) {
  const DF df;
  const VF norm = hn::Load(df, tile.norm + key);
  VF sum = hn::MulAdd(hn::Set(df, operand.norm_term), norm, hn::Set(df, operand.floor));
  sum = hn::MulAdd(hn::Set(df, operand.low_term), hn::Load(df, tile.low_norm + key), sum);
  if (operand.groups == 0) return sum;
  VF grouped = hn::Zero(df);
  for (int g = 0; g < operand.groups; ++g) {
    const VF group_norm = hn::Load(df, tile.group_norm + g * tile.capacity + key);
    grouped = hn::MulAdd(hn::Set(df, operand.group_allowance[g]), group_norm, grouped);
  }
  return hn::Add(sum, hn::Min(hn::Mul(hn::Set(df, operand.allowance), norm), grouped));
}

/// Survivors of kBlocks blocks from key `key`, as kBlocks * kLanes bits.
template <int kBlocks>
HWY_INLINE std::uint64_t screen_blocks(const plan::ScreenOperand& operand,
                                       const plan::KeyTile& tile, int key, float guarded,
                                       float* HWY_RESTRICT bounds) {
  const DF df;
  VF sum[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    sum[b] = initial_sum(operand, tile, key + b * static_cast<int>(kLanes));
  }
  add_all_rows<kBlocks>(operand, tile.columns + key * (operand.head_dim / 2), sum);
  std::uint64_t bits = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const int at = key + b * static_cast<int>(kLanes);
    const VF bound = hn::Mul(sum[b], hn::Load(df, tile.factor + at));
    hn::Store(bound, df, bounds + at);
    const auto below = hn::Lt(bound, hn::Set(df, guarded));
    const auto finite = hn::Ge(bound, hn::Set(df, std::numeric_limits<float>::lowest()));
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(df, hn::Not(hn::And(below, finite)), bytes);
    std::uint64_t mask = bytes[0];
    if (kLanes == 16) mask |= static_cast<std::uint64_t>(bytes[1]) << 8;
    bits |= mask << (b * static_cast<int>(kLanes));
  }
  return bits;
}

Survivors screen_tile(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                      LowerBound guarded, float* bounds) {
  constexpr int kPair = 2 * static_cast<int>(kLanes);
  Survivors survivors{};
  int key = 0;
  for (; key < tile.count; key += kPair) {
    const std::uint64_t bits = key + static_cast<int>(kLanes) < tile.count
                                   ? screen_blocks<2>(operand, tile, key, guarded.value, bounds)
                                   : screen_blocks<1>(operand, tile, key, guarded.value, bounds);
    survivors[static_cast<std::size_t>(key) / 64] |= bits << (key % 64);
  }
  if (tile.count % 64 != 0) {  // lanes behind the last key computed on whatever was there
    survivors[static_cast<std::size_t>(tile.count) / 64] &=
        (std::uint64_t{1} << (tile.count % 64)) - 1;
  }
  return survivors;
}

#else  // DOSA_SIMD

Survivors screen_tile(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                      LowerBound guarded, float* bounds) {
  return screen_tile_ref(operand, tile, guarded, bounds);
}

#endif  // DOSA_SIMD

}  // namespace HWY_NAMESPACE
}  // namespace dosa::screen
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dosa::screen {

HWY_EXPORT(screen_tile);

Survivors screen_tile(const plan::ScreenOperand& operand, const plan::KeyTile& tile,
                      LowerBound guarded, float* bounds) {
  return HWY_DYNAMIC_DISPATCH(screen_tile)(operand, tile, guarded, bounds);
}

}  // namespace dosa::screen
#endif  // HWY_ONCE
