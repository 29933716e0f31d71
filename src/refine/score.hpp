// SPDX-License-Identifier: Apache-2.0
// Step 3: the full score of the keys that survive, in the `ieee` score model (docs/numerics.md).
#ifndef DOSA_REFINE_SCORE_HPP
#define DOSA_REFINE_SCORE_HPP

#include <cstdint>

#include "numeric/bounds.hpp"
#include "plan/operands.hpp"
#include "plan/screen_operand.hpp"

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

/// Exact scores of the picked keys that may reach the threshold. Most keys fall below it by the
/// bound over all heads, which needs the products of the int16 rows alone and no exact arithmetic.
/// Shapes:    pick (count); kept (count) and scores (count): position and score of what is left, in
///            pick order; bounds (count) or null: computed bounds of all picked keys
/// Guarantee: every picked key whose score is not below the threshold is left (E6 with no head
/// omitted) Returns:   how many are left
int refine_keys(const plan::QueryPack& query, const plan::KeyTile& tile,
                const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                float* bounds);
int refine_keys_ref(const plan::QueryPack& query, const plan::KeyTile& tile,
                    const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                    const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                    float* bounds);

/// The fp32 chain from the dot products of all padded heads (rounded once to fp32) to the score.
/// dots (padded_heads): fused[h] for the real heads, zero behind them.
float score_chain_ref(const float* dots, const float* weights, int heads, float scale);

/// Heads after padding for the chain: a multiple of 8, at least 16.
inline int chain_heads(int heads) { return heads <= 16 ? 16 : (heads + 7) / 8 * 8; }

}  // namespace dosa::refine

#endif  // DOSA_REFINE_SCORE_HPP
