// SPDX-License-Identifier: Apache-2.0
#include "plan/operands.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "numeric/e4m3.hpp"
#include "numeric/outward.hpp"

namespace dosa::plan {

int split_shift(std::int64_t squared_norm, std::int32_t largest, std::int64_t norm_limit) {
  const std::int64_t limit = norm_limit * norm_limit;
  int shift = 0;
  while (squared_norm > limit << (2 * shift) || largest > kInt16Max << shift) ++shift;
  return shift;
}

void KeyTile::place(Arena& arena, int capacity_, int head_dim_, int lanes_, int groups_,
                    bool columns_) {
  capacity = capacity_;
  head_dim = head_dim_;
  lanes = lanes_;
  groups = groups_;
  const auto keys = static_cast<std::size_t>(capacity);
  const auto dims = static_cast<std::size_t>(head_dim);
  rows = arena.take<std::int16_t>(keys * dims);
  if (columns_) columns = arena.take<std::int32_t>(keys * dims / 2);
  shift = arena.take<std::uint8_t>(keys);
  scale = arena.take<float>(keys);
  norm = arena.take<float>(keys);
  low_norm = arena.take<float>(keys);
  factor = arena.take<float>(keys);
  group_norm = arena.take<float>(keys * static_cast<std::size_t>(groups));
  low_begin = arena.take<std::uint32_t>(keys + 1);
  low = arena.take<LowPair>(keys * dims / 2);
}

void QueryPack::place(Arena& arena, int heads_, int head_dim_) {
  heads = heads_;
  padded_heads = plan::padded_heads(heads_);
  head_dim = head_dim_;
  const auto lanes = static_cast<std::size_t>(padded_heads);
  const auto pair_count = static_cast<std::size_t>(head_dim) / 2;
  pairs = arena.take<std::int32_t>(pair_count * lanes);
  low_pairs = arena.take<std::int32_t>(pair_count * lanes);
  low_column = arena.take<std::uint16_t>(pair_count);
  low_row = arena.take<std::int16_t>(pair_count);
  weights = arena.take<float>(lanes);
  unit = arena.take<float>(lanes);
}

void QueryRows::place(Arena& arena, int heads, int head_dim) {
  const auto count = static_cast<std::size_t>(heads);
  hat = arena.take<std::int16_t>(count * static_cast<std::size_t>(head_dim));
  low = arena.take<std::int16_t>(count * static_cast<std::size_t>(head_dim));
  shift = arena.take<std::uint8_t>(count);
  norm = arena.take<double>(count);
  hat_norm = arena.take<double>(count);
  low_norm = arena.take<double>(count);
}

void finish_tile_ref(const KeySums& sums, KeyTile& tile) {
  for (int i = 0; i < tile.count; ++i) {
    tile.norm[i] = key_length(sums.squared[i], tile.shift[i]);
    tile.low_norm[i] = key_length(sums.low_squared[i], tile.shift[i]);
    for (int g = 0; g < tile.groups; ++g) {
      tile.group_norm[g * tile.capacity + i] = key_length(sums.group_squared[g][i], tile.shift[i]);
    }
    // A negative scale flips the inequality; the other odd scales, and products that could overflow
    // (N10), have no valid bound: such keys are never pruned.
    const float scale = tile.scale[i];
    const float factor = scale * (static_cast<float>(1 << tile.shift[i]) * 0x1p-18F);
    const bool valid = std::isnormal(scale) && scale > 0.0F && std::isnormal(factor) &&
                       factor * tile.norm[i] <= kKeyProductLimit;
    tile.factor[i] = valid ? factor : std::numeric_limits<float>::quiet_NaN();
  }
}

namespace {

bool has_nan_code(const std::uint8_t* codes, int count) {
  for (int d = 0; d < count; ++d) {
    if (e4m3_is_nan(codes[d])) return true;
  }
  return false;
}

std::int32_t pair_of(std::int16_t first, std::int16_t second) {
  return static_cast<std::int32_t>(
      static_cast<std::uint16_t>(first) |
      (static_cast<std::uint32_t>(static_cast<std::uint16_t>(second)) << 16));
}

/// Splits one vector; returns the shift.
int split_vector(const std::uint8_t* codes, int dims, std::int64_t norm_limit, std::int16_t* hat,
                 std::int16_t* low, std::int64_t& squared, std::int64_t& low_squared,
                 std::int64_t& hat_squared) {
  std::int32_t units[DOSA_MAX_HEAD_DIM];
  const bool is_nan = has_nan_code(codes, dims);
  std::int32_t largest = 0;
  squared = low_squared = hat_squared = 0;
  for (int d = 0; d < dims; ++d) {
    units[d] = is_nan ? 0 : kE4m3Units[codes[d]];
    squared += static_cast<std::int64_t>(units[d]) * units[d];
    largest = std::max(largest, std::abs(units[d]));
  }
  const int shift = split_shift(squared, largest, norm_limit);
  for (int d = 0; d < dims; ++d) {
    const std::int32_t floor = units[d] >> shift;
    const std::int32_t half = (1 << shift) >> 1;
    const std::int32_t tie_up = floor & 1;  // ties to even
    const std::int32_t rounded = shift == 0 ? floor : (units[d] + half - 1 + tie_up) >> shift;
    const std::int32_t rest = units[d] - rounded * (1 << shift);
    hat[d] = static_cast<std::int16_t>(rounded);
    low[d] = static_cast<std::int16_t>(rest);
    hat_squared += static_cast<std::int64_t>(rounded) * rounded;
    low_squared += static_cast<std::int64_t>(rest) * rest;
  }
  return shift;
}

}  // namespace

void build_tile_ref(const KeySource& keys, std::int64_t first, const std::int32_t* ids, int count,
                    KeyTile& tile) {
  tile.first = first;
  tile.ids = ids;
  tile.count = count;
  const int dims = tile.head_dim;
  const int pairs = dims / 2;
  std::uint32_t num_low = 0;
  std::int16_t low[DOSA_MAX_HEAD_DIM];
  KeySums sums{};
  for (int i = 0; i < count; ++i) {
    const std::int64_t id = tile.id(i);
    std::int16_t* hat = tile.rows + static_cast<std::ptrdiff_t>(i) * dims;
    std::int64_t squared = 0;
    std::int64_t low_squared = 0;
    std::int64_t hat_squared = 0;
    const int shift = split_vector(keys.codes + id * keys.stride, dims, kKeyNorm, hat, low, squared,
                                   low_squared, hat_squared);
    tile.shift[i] = static_cast<std::uint8_t>(shift);
    tile.scale[i] = keys.scale[id];
    sums.squared[i] = static_cast<double>(squared);
    sums.low_squared[i] = static_cast<double>(low_squared);
    for (int d = 0; d < dims && tile.groups > 0; ++d) {
      const double value = hat[d] * (1 << shift) + low[d];
      sums.group_squared[d * tile.groups / dims][i] += value * value;
    }
    tile.low_begin[i] = num_low;
    for (int j = 0; j < pairs && low_squared > 0; ++j) {
      if (low[2 * j] != 0 || low[2 * j + 1] != 0) {
        tile.low[num_low++] = {static_cast<std::uint16_t>(j), low[2 * j], low[2 * j + 1]};
      }
    }
    for (int j = 0; j < pairs && tile.columns != nullptr; ++j) {
      const std::ptrdiff_t block = i / tile.lanes;
      tile.columns[(block * pairs + j) * tile.lanes + i % tile.lanes] =
          pair_of(hat[2 * j], hat[2 * j + 1]);
    }
  }
  tile.low_begin[count] = num_low;
  finish_tile_ref(sums, tile);
}

void pack_query_ref(const std::uint8_t* codes, const float* weights, QueryPack& pack,
                    QueryRows& rows) {
  const int dims = pack.head_dim;
  const int lanes = pack.padded_heads;
  pack.finite = true;
  std::memset(pack.pairs, 0, sizeof(std::int32_t) * static_cast<std::size_t>(dims / 2 * lanes));
  for (int h = 0; h < lanes; ++h) {
    pack.weights[h] = h < pack.heads ? weights[h] : 0.0F;
    pack.unit[h] = 1.0F;
    if (h >= pack.heads) continue;
    const std::uint8_t* head = codes + static_cast<std::ptrdiff_t>(h) * dims;
    std::int16_t* hat = rows.hat + static_cast<std::ptrdiff_t>(h) * dims;
    std::int16_t* low = rows.low + static_cast<std::ptrdiff_t>(h) * dims;
    std::int64_t squared = 0;
    std::int64_t low_squared = 0;
    std::int64_t hat_squared = 0;
    const int shift =
        split_vector(head, dims, kQueryNorm, hat, low, squared, low_squared, hat_squared);
    rows.shift[h] = static_cast<std::uint8_t>(shift);
    rows.norm[h] = outward(std::sqrt(static_cast<double>(squared)));
    rows.hat_norm[h] = outward(std::sqrt(static_cast<double>(hat_squared)));
    rows.low_norm[h] = outward(std::sqrt(static_cast<double>(low_squared)));
    pack.unit[h] = static_cast<float>(1 << shift);
    pack.finite = pack.finite && std::isfinite(weights[h]) && !has_nan_code(head, dims);
    for (int j = 0; j < dims / 2; ++j) {
      pack.pairs[j * lanes + h] = pair_of(hat[2 * j], hat[2 * j + 1]);
    }
  }
  pack_low_columns(rows, pack);
}

void pack_low_columns(const QueryRows& rows, QueryPack& pack) {
  const int dims = pack.head_dim;
  const int lanes = pack.padded_heads;
  pack.num_low = 0;
  for (int j = 0; j < dims / 2; ++j) {
    bool any = false;
    for (int h = 0; h < pack.heads && !any; ++h) {
      any = rows.low_norm[h] > 0.0 &&
            (rows.low[h * dims + 2 * j] != 0 || rows.low[h * dims + 2 * j + 1] != 0);
    }
    pack.low_row[j] = any ? static_cast<std::int16_t>(pack.num_low) : std::int16_t{-1};
    if (!any) continue;
    std::int32_t* column = pack.low_pairs + static_cast<std::ptrdiff_t>(pack.num_low) * lanes;
    for (int h = 0; h < lanes; ++h) {
      column[h] = 0;
      if (h >= pack.heads) continue;
      column[h] = pair_of(rows.low[h * dims + 2 * j], rows.low[h * dims + 2 * j + 1]);
    }
    pack.low_column[pack.num_low++] = static_cast<std::uint16_t>(j);
  }
}

}  // namespace dosa::plan
