// SPDX-License-Identifier: Apache-2.0
// From survivor bits to key lists, and the choice between refinement and dense scoring.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"

namespace dosa::screen {

/// Kinds of work in KeyOrder::active.
enum WorkKind : int { kScreened = 0, kDense = 1 };

/// Keys of one round that survive for at least one row of a group of 128 / H rows.
struct SurvivorLists {
  int* counts;      // (groups); also counts what found no room
  int* keys;        // (groups, capacity) key ids in any order
  int* tile_first;  // (groups + 1): tiles of 64 keys before the group
  int capacity;
  int group_rows;   // 4, 2 or 1
  unsigned long long* total;  // survivors of the call, statistics
};

struct SurvivorParams {
  gpu::Round round;       // of the screening launch
  const uint32_t* masks;  // ScreenParams::masks
  int mask_units;
  int num_keys;
  gpu::KeyOrder* orders;  // the round's, to be changed by the choice
  SurvivorLists lists;
  float most_share;       // a block with a group above this share of survivors turns dense
};

/// Turns the masks of a round into lists; then, per block of rows, either keeps the lists or, where
/// a list overflowed or too much survived, empties them and hands the block to dense scoring, for
/// this round and all later ones.
/// Guarantee: every surviving key is in its group's list, or its block is dense for the round
/// Error:    cudaError_t of the launches
cudaError_t launch_survivors_sm90(const SurvivorParams& params, cudaStream_t stream);

}  // namespace dosa::screen
