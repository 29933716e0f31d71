// SPDX-License-Identifier: Apache-2.0
//
// Every size at which the engine starts another buffer, tile, group or path, taken from its code
// or, where it is private, found by watching it. A fault of public selectors is a fault at such a
// size: each is tried at one less, itself, one more and twice.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "dosa/dosa.h"
#include "engine/row_group.hpp"
#include "numeric/arena.hpp"
#include "plan/operands.hpp"
#include "plan/screen_operand.hpp"
#include "select/records.hpp"

namespace dosa::test {

enum class Axis { kKeys, kRows, kHeads, kHeadDim, kTopk };

struct Boundary {
  std::string name;
  Axis axis;
  std::int64_t value;
};

inline std::ostream& operator<<(std::ostream& out, const Boundary& b) {
  return out << b.name << " = " << b.value;
}

/// K of the problems in which another size is varied.
constexpr int kBoundaryTopk = 64;

/// Records that a row of width `topk` holds before it is reduced, and at most.
inline std::int64_t record_limit(int topk) { return topk + select::RecordBuffer::slack(topk); }
inline std::int64_t record_capacity(int topk) { return record_limit(topk) + plan::kTileKeys; }

/// The least K whose record buffer has another slack than smaller ones.
inline int slack_change() {
  int topk = 1;
  while (select::RecordBuffer::slack(topk) == select::RecordBuffer::slack(1)) ++topk;
  return topk;
}

inline std::vector<Boundary> boundaries() {
  const int lanes = plan::simd_lanes();
  return {
      {"keys scored at once", Axis::kKeys, lanes / 2},
      {"keys in a vector", Axis::kKeys, lanes},
      {"K", Axis::kKeys, kBoundaryTopk},
      {"tile", Axis::kKeys, plan::kTileKeys},
      {"records before a reduction", Axis::kKeys, record_limit(kBoundaryTopk)},
      {"capacity of records", Axis::kKeys, record_capacity(kBoundaryTopk)},
      {"sample", Axis::kKeys, engine::kSampleKeys},
      {"tiles stored by base", Axis::kKeys, std::int64_t{engine::kBaseTiles} * plan::kTileKeys},
      {"an eighth is the largest sample", Axis::kKeys, std::int64_t{8} * engine::kSampleKeys},
      {"rows with a pilot", Axis::kRows, engine::kPilotRows},
      {"smallest full group", Axis::kRows, engine::kGroupRows / 4},
      {"group", Axis::kRows, engine::kGroupRows},
      {"keys of a chain", Axis::kHeads, 8},
      {"lanes of heads", Axis::kHeads, plan::kHeadLanes},
      {"two vectors of heads", Axis::kHeads, std::int64_t{2} * lanes},
      {"a word of active heads", Axis::kHeads, 64},
      {"most heads", Axis::kHeads, DOSA_MAX_HEADS},
      {"least coordinates", Axis::kHeadDim, 16},
      {"most coordinates", Axis::kHeadDim, DOSA_MAX_HEAD_DIM},
      {"tile of winners", Axis::kTopk, plan::kTileKeys},
      {"sample of winners", Axis::kTopk, engine::kSampleKeys},
      {"slack of records", Axis::kTopk, slack_change()},
      {"most winners", Axis::kTopk, DOSA_MAX_TOPK},
  };
}

/// The sizes to try around a boundary; those outside the contract must be refused.
inline std::vector<std::int64_t> sizes_around(const Boundary& b) {
  if (b.axis == Axis::kHeadDim)
    return {b.value - 16, b.value - 1, b.value, b.value + 1, b.value + 16, 2 * b.value};
  return {b.value - 1, b.value, b.value + 1, 2 * b.value};
}

static_assert(engine::kSampleKeys % plan::kTileKeys == 0, "the sample is whole tiles");
static_assert(engine::kGroupRows % 4 == 0, "groups shrink to a quarter with heads and dimensions");
static_assert(DOSA_MAX_HEADS % plan::kHeadLanes == 0, "padded heads stay within the limit");
static_assert(DOSA_MAX_HEADS <= 128, "active heads are two words");

}  // namespace dosa::test
