// SPDX-License-Identifier: Apache-2.0
// From survivor bits to key lists, and the choice between refinement and dense scoring.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"

namespace dosa::screen {

/// Keys of one round that survive for at least one row of a group of 128 / H rows. A group's keys
/// start at tile_first[group] * 64, padded to whole tiles of 64.
struct SurvivorLists {
  int* counts;                // (groups)
  int* cursors;               // (groups): keys written so far
  int* tile_first;            // (groups + 1): tiles of 64 keys before the group
  int* keys;                  // (pool) key ids, in any order within a group
  int group_rows;             // 4, 2 or 1
  unsigned long long* total;  // survivors of the call, statistics
};

/// A block of rows whose groups keep more than this share of a round's keys is scored densely.
constexpr float kMostSurvivors = 0.25f;

/// Keys for which the pool of lists needs room.
__host__ __device__ constexpr int64_t pool_keys(int64_t groups, int64_t round_keys) {
  return groups * (static_cast<int64_t>(kMostSurvivors * static_cast<float>(round_keys)) + 65);
}

struct SurvivorParams {
  gpu::Round round;       // of the screening launch
  const uint32_t* masks;  // ScreenParams::masks
  int mask_units;
  int screen_rows;    // R' of the masks
  const int* chosen;  // in device memory, instead of screen_rows; may be null
  int num_keys;
  gpu::KeyOrder* orders;  // the round's, to be changed by the choice
  int retry_from;         // place at which a block that is now scored densely is screened again
  SurvivorLists lists;
};

/// Counts the listed keys of every group of the round, without listing them.
cudaError_t launch_count_survivors_sm90(const SurvivorParams& params, cudaStream_t stream);

/// Turns the masks of a round into lists; a block of rows of which too much survives gets none and
/// is left to dense scoring, for this round and until place `retry_from`.
/// Guarantee: every surviving key is in its group's list, or its block is dense for the round
/// Error:    cudaError_t of the launches
cudaError_t launch_survivors_sm90(const SurvivorParams& params, cudaStream_t stream);

}  // namespace dosa::screen
