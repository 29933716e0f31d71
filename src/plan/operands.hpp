// SPDX-License-Identifier: Apache-2.0
// Keys and queries as integers, so that dot products of e4m3 vectors are exact and cheap.
//
// All lengths here are in units of 2^-9, of which every e4m3 value is an integer multiple. A vector
// x is split x = 2^s x^ + x_lo with the least shift s >= 0 for which x^ fits int16 and its norm a
// bound; for most vectors x_lo has no or few non-zero entries. With |q^| < 2^16 and |k^| < 2^15
// every partial sum of q^ . k^ stays below 2^31 (N3, docs/numerics.md), and
//   q.k = 2^(sq+sk) [q^.k^] + 2^sk [q_lo.k^] + 2^sq [q^.k_lo] + [q_lo.k_lo]        (units of 2^-18)
// is exact in double (N3).
#ifndef DOSA_PLAN_OPERANDS_HPP
#define DOSA_PLAN_OPERANDS_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "dosa/dosa.h"
#include "numeric/arena.hpp"

namespace dosa::plan {

inline constexpr int kTileKeys =
    256;  // keys per tile: 64 KiB of int16 at D = 128, half an L2 slice
inline constexpr int kHeadLanes = 16;  // packed heads are padded to this many
inline constexpr int kMaxGroups = 8;   // coordinate groups of the grouped allowance
inline constexpr std::int64_t kQueryNorm = 65536 - 16;  // 2^16, less what rounding can add (N3)
inline constexpr std::int64_t kKeyNorm = 32768 - 16;    // 2^15, likewise
inline constexpr std::int32_t kInt16Max = 32767;
inline constexpr float kKeyProductLimit = 0x1p54F;  // k_scale |k| <= 2^63, in units of 2^-9 (N10)

/// The least shift for a vector of this squared norm and largest magnitude (units of 2^-9).
int split_shift(std::int64_t squared_norm, std::int32_t largest, std::int64_t norm_limit);

/// Non-zero low parts of one key, by pair of coordinates.
struct LowPair {
  std::uint16_t pair;  // coordinates 2 * pair and 2 * pair + 1
  std::int16_t first, second;
};

/// A tile of keys, contiguous or listed, ready for scoring (rows) and screening (columns).
struct KeyTile {
  // Shape
  int capacity = 0, head_dim = 0, lanes = 0, groups = 0;
  int count = 0;
  std::int64_t first = 0;             // id of key 0 of a contiguous tile
  const std::int32_t* ids = nullptr;  // ids of a listed tile; null: contiguous
  // Per key
  std::int16_t* rows = nullptr;     // (capacity, D) k^
  std::int32_t* columns = nullptr;  // (capacity / lanes, D / 2, lanes) pairs of k^; null: not built
  std::uint8_t* shift = nullptr;    // (capacity)
  float* scale = nullptr;           // (capacity) k_scale
  float* norm = nullptr;            // (capacity) kappa >= |k| / 2^s, in units of 2^-9
  float* low_norm = nullptr;        // (capacity) lambda >= |k_lo| / 2^s
  float* factor = nullptr;          // (capacity) k_scale 2^(s-18); NaN: this key is never pruned
  float* group_norm = nullptr;      // (groups, capacity) the norm of each group of coordinates
  // Low parts of key i: low[low_begin[i] .. low_begin[i + 1])
  std::uint32_t* low_begin = nullptr;  // (capacity + 1)
  LowPair* low = nullptr;              // (capacity * D / 2)

  [[nodiscard]] std::int32_t id(int i) const {
    return ids != nullptr ? ids[i] : static_cast<std::int32_t>(first + i);
  }
  void place(Arena& arena, int capacity_, int head_dim_, int lanes_, int groups_, bool columns_);
};

/// The caller's keys.
struct KeySource {
  const std::uint8_t* codes;  // (N, D), stride in elements
  std::int64_t stride;
  const float* scale;
};

/// Fills `tile` with keys [first, first + count) or, where ids is given, with the keys listed.
void build_tile(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                KeyTile& tile);
void build_tile_ref(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                    KeyTile& tile);

/// Squared norms of the keys of a tile, exact integers in units of 2^-18.
struct KeySums {
  double squared[kTileKeys];
  double low_squared[kTileKeys];
  double group_squared[kMaxGroups][kTileKeys];
};
/// At least |x| / 2^s (N4): the slack covers the square root and the rounding to fp32, and lengths
/// are 0 or at least 2^-8, so that nothing underflows.
inline constexpr double kLengthSlack = 1.0 + 0x1p-23;
inline float key_length(double squared, int shift) {
  return static_cast<float>(std::sqrt(squared) * kLengthSlack / (1 << shift));
}
/// Norms and factors of all keys; shift and scale are set.
void finish_tile_ref(const KeySums& sums, KeyTile& tile);

/// One query row, lanes = heads, for exact scoring.
struct QueryPack {
  int heads = 0, padded_heads = 0, head_dim = 0;
  std::int32_t* pairs = nullptr;        // (D / 2, padded_heads) pairs of q^
  std::int32_t* low_pairs = nullptr;    // (num_low, padded_heads) pairs of q_lo
  std::uint16_t* low_column = nullptr;  // (num_low) which pair of coordinates
  std::int16_t* low_row = nullptr;      // (D / 2) row of low_pairs that a column has, -1: none
  int num_low = 0;
  float* weights = nullptr;  // (padded_heads), zero behind the last head
  float* unit = nullptr;     // (padded_heads) 2^sq
  bool finite = true;        // no NaN code, all weights finite: the row may be screened

  void place(Arena& arena, int heads_, int head_dim_);
};

/// The same row, lanes = coordinates, with its norms, for planning.
struct QueryRows {
  std::int16_t* hat = nullptr;  // (H, D) q^
  std::int16_t* low = nullptr;  // (H, D) q_lo, units of 2^-9
  std::uint8_t* shift = nullptr;
  double* norm = nullptr;      // (H) |q_h|, rounded up, units of 2^-9
  double* hat_norm = nullptr;  // (H) |q^_h|, rounded up
  double* low_norm = nullptr;  // (H) |q_lo,h|, rounded up, units of 2^-9

  void place(Arena& arena, int heads, int head_dim);
};

/// codes (H, D) e4m3, weights (H).
void pack_query(const std::uint8_t* codes, const float* weights, QueryPack& pack, QueryRows& rows);
void pack_query_ref(const std::uint8_t* codes, const float* weights, QueryPack& pack,
                    QueryRows& rows);

/// The low columns of a pack from rows.low (part of pack_query).
void pack_low_columns(const QueryRows& rows, QueryPack& pack);

/// Lanes of the instruction set in use, and its name.
int simd_lanes();
const char* simd_name();

inline int padded_heads(int heads) { return (heads + kHeadLanes - 1) / kHeadLanes * kHeadLanes; }

}  // namespace dosa::plan

#endif  // DOSA_PLAN_OPERANDS_HPP
