// SPDX-License-Identifier: Apache-2.0
// Screening on sm_90a: a bound for every key of a round from R' rows per query instead of H heads.
#pragma once

#include "gpu/stationary_params.cuh"
#include "numeric/row_state_sm90.cuh"
#include "plan/screen_layout_sm90.cuh"

namespace dosa::screen {

/// What is done with the bounds.
enum class Sink {
  kVote,  // compared; the outcome is kept as survivor masks
  kStore  // all of them, to memory
};

struct ScreenParams : gpu::StationaryParams {
  numeric::RowState rows;
  const float* coefficients;  // (padded rows, R' + 2): R' weights, E, G
  uint32_t* masks;            // (blocks, mask_units, kMaskWords), see below
  int mask_units;             // units of a round for which there is room
  float2* bounds;             // launch_bounds_sm90: (rows, N), `bounds_stride` apart
  int64_t bounds_stride;
  int num_keys;
};

/// Survivor bits of one unit of 256 keys and one block of 64 rows: 512 words. Word
///   [warp 0..3][tile of the block][64 keys 0..3][slot][half]
/// holds keys 64 * (..) + warp * 16 + half * 8 + (0..7) of the unit for queries
/// tile * (queries of a tile) + slot * 4 + (0..3) of the block: bit 4 * key + query. A warp writes
/// the words of a tile and unit at once.
constexpr int kMaskWords = 512;

/// Words per warp, tile and 64 keys.
__host__ __device__ constexpr int mask_words(int screen_rows) {
  return plan::ScreenLayout::tile_queries(screen_rows) / 2;
}

/// Writes the survivor masks of the places of params.round; screen_rows R' is 8, 16, 24 or 32.
/// Guarantee: a key whose computed score is at least its row's threshold has its bit set (E6, N11)
/// Error:    cudaError_t of the launch
cudaError_t launch_screen_sm90(const ScreenParams& params, int screen_rows, int multiprocessors,
                               cudaStream_t stream);

/// The same products and sums, but stores what would be compared: the bound U of each row and key
/// of the round, and the part of it that is allowance. For audits.
/// Shapes:   params.bounds; U is NaN for rows that are flagged kRowRecover
/// Error:    cudaError_t of the launch
cudaError_t launch_bounds_sm90(const ScreenParams& params, int screen_rows, int multiprocessors,
                               cudaStream_t stream);

}  // namespace dosa::screen
