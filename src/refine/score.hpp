// SPDX-License-Identifier: Apache-2.0
// Step 3: the full score of the keys that survive, in the `ieee` score model (docs/numerics.md).
#ifndef DOSA_REFINE_SCORE_HPP
#define DOSA_REFINE_SCORE_HPP

#include <cstdint>

#include "plan/operands.hpp"

namespace dosa::refine {

/// Which heads have a positive dot product with a key: bit h % 64 of word h / 64.
struct ActiveHeads {
  std::uint64_t word[2];
};

/// Scores of keys of a tile for one query row.
/// Shapes:    pick (count) positions in the tile, null: positions 0 .. count - 1; scores (count);
///            active (count) or null
/// Guarantee: the same bits for every instruction set; equal to score_keys_ref
/// Cost:      count * H * D multiply-adds
void score_keys(const plan::QueryPack& query, const plan::KeyTile& tile, const std::uint16_t* pick,
                int count, float* scores, ActiveHeads* active);
void score_keys_ref(const plan::QueryPack& query, const plan::KeyTile& tile,
                    const std::uint16_t* pick, int count, float* scores, ActiveHeads* active);

/// The fp32 chain from the dot products of all padded heads (rounded once to fp32) to the score.
/// dots (padded_heads): fused[h] for the real heads, zero behind them.
float score_chain_ref(const float* dots, const float* weights, int heads, float scale);

/// Heads after padding for the chain: a multiple of 8, at least 16.
inline int chain_heads(int heads) { return heads <= 16 ? 16 : (heads + 7) / 8 * 8; }

}  // namespace dosa::refine

#endif  // DOSA_REFINE_SCORE_HPP
