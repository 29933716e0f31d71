// SPDX-License-Identifier: Apache-2.0
// The order in which a block of rows meets its keys, and how that work is split over CTAs.
#pragma once

#include <cstdint>

namespace dosa::gpu {

constexpr int kUnitKeys = 256;   // keys of one pipeline stage
constexpr int kBlockRows = 64;   // query rows that share one key order
constexpr int kMaxBlocks = 256;  // blocks of one launch

/// The units of 256 keys that a block of rows can see, visited at a stride coprime to their number,
/// so that every prefix of the order is spread over the whole context.
struct KeyOrder {
  int first_unit;
  int units;       // 0: no row of the block sees a key
  int stride;      // coprime to units
  int split_from;  // place from which on the block's rounds are of kind kLate
};

/// Which blocks of rows a kernel of a round processes.
enum class Kind : int {
  kEvery,  // all of them
  kEarly,  // those whose split_from lies behind the round's begin
  kLate    // the others
};

/// Unit at place `index` of the order.
__device__ __forceinline__ int unit_at(const KeyOrder& order, int index) {
  const uint64_t product = static_cast<uint64_t>(index) * static_cast<uint32_t>(order.stride);
  if (product >> 32 == 0) {
    return order.first_unit +
           static_cast<int>(static_cast<uint32_t>(product) % static_cast<uint32_t>(order.units));
  }
  return order.first_unit + static_cast<int>(product % static_cast<uint32_t>(order.units));
}

/// Places [begin, end) of every block's order, for `columns` column tiles of each block.
struct Round {
  const KeyOrder* orders;  // (blocks)
  int blocks;
  int columns;
  int begin;
  int end;
  Kind kind;
};

__device__ __forceinline__ int round_units(const Round& round, const KeyOrder& order) {
  const bool late = round.begin >= order.split_from;
  if ((round.kind == Kind::kEarly && late) || (round.kind == Kind::kLate && !late)) return 0;
  const int end = order.units < round.end ? order.units : round.end;
  return end > round.begin ? end - round.begin : 0;
}

/// A run of consecutive places for one column tile of one block.
struct Segment {
  int block;
  int column;
  int begin;  // place in the order, not relative to the round
  int count;
};

/// Splits the flattened work (block, column tile, place) of a round evenly over the CTAs.
/// Call prepare() with one whole warp, synchronise, then every thread may iterate.
struct WorkSplit {
  int prefix[kMaxBlocks + 1];  // units of the blocks before, for one column tile

  __device__ void prepare(const Round& round) {
    constexpr int kPerLane = kMaxBlocks / 32;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    int sums[kPerLane];
    int total = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int block = lane * kPerLane + i;
      total += block < round.blocks ? round_units(round, round.orders[block]) : 0;
      sums[i] = total;
    }
    int before = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, before, step);
      if (lane >= step) before += other;
    }
    before -= total;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) prefix[lane * kPerLane + i + 1] = before + sums[i];
    if (lane == 0) prefix[0] = 0;
  }

  __device__ int64_t total(const Round& round) const {
    return static_cast<int64_t>(prefix[round.blocks]) * round.columns;
  }

  /// The longest segment that starts at flattened place `from` and ends by `to`; from < to.
  __device__ Segment at(const Round& round, int64_t from, int64_t to) const {
    int low = 0;
    int high = round.blocks;  // prefix[low] * columns <= from < prefix[high] * columns
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (static_cast<int64_t>(prefix[middle]) * round.columns <= from) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const int units = prefix[low + 1] - prefix[low];
    const int offset = static_cast<int>(from - static_cast<int64_t>(prefix[low]) * round.columns);
    const int place = offset % units;
    const int left = units - place;
    const int count = to - from < left ? static_cast<int>(to - from) : left;
    return {low, offset / units, round.begin + place, count};
  }
};

}  // namespace dosa::gpu
