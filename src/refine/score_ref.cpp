// SPDX-License-Identifier: Apache-2.0
// The scalar reference of the full score: reads like the definition of the `ieee` model.
#include <cmath>

#include "numeric/e4m3.hpp"
#include "refine/score.hpp"

namespace dosa::refine {
namespace {

float relu(float x) { return x > 0.0F ? x : 0.0F; }

/// The exact integer q_h . k in units of 2^-18.
std::int64_t exact_dot(const plan::QueryPack& query, const plan::KeyTile& tile, int head, int key) {
  const auto first = [](std::int32_t pair) { return static_cast<std::int16_t>(pair & 0xFFFF); };
  const auto second = [](std::int32_t pair) { return static_cast<std::int16_t>(pair >> 16); };
  const int dims = tile.head_dim;
  const int lanes = query.padded_heads;
  std::int64_t key_units[256];
  for (int d = 0; d < dims; ++d) {
    key_units[d] = tile.rows[key * dims + d] * (1LL << tile.shift[key]);
  }
  for (std::uint32_t n = tile.low_begin[key]; n < tile.low_begin[key + 1]; ++n) {
    key_units[2 * tile.low[n].pair] += tile.low[n].first;
    key_units[2 * tile.low[n].pair + 1] += tile.low[n].second;
  }
  const auto unit = static_cast<std::int64_t>(query.unit[head]);
  std::int64_t sum = 0;
  for (int j = 0; j < dims / 2; ++j) {
    const std::int32_t pair = query.pairs[j * lanes + head];
    sum += unit * (first(pair) * key_units[2 * j] + second(pair) * key_units[2 * j + 1]);
  }
  for (int n = 0; n < query.num_low; ++n) {
    const std::int32_t pair = query.low_pairs[n * lanes + head];
    const int j = query.low_column[n];
    sum += first(pair) * key_units[2 * j] + second(pair) * key_units[2 * j + 1];
  }
  return sum;
}

}  // namespace

float score_chain_ref(const float* dots, const float* weights, int heads, float scale) {
  const int slots = chain_heads(heads) / 8;
  const auto at = [heads](const float* values, int h) { return h < heads ? values[h] : 0.0F; };
  float part[4];
  for (int lane = 0; lane < 4; ++lane) {
    float chain[2];
    for (int odd = 0; odd < 2; ++odd) {
      const int h = 2 * lane + odd;
      float t =
          relu(at(dots, h + 8)) * at(weights, h + 8);  // the second product is the rounded one
      t = std::fma(relu(at(dots, h)), at(weights, h), t);
      for (int j = 2; j < slots; ++j) {
        t = std::fma(relu(at(dots, h + 8 * j)), at(weights, h + 8 * j), t);
      }
      chain[odd] = t;
    }
    part[lane] = (chain[0] + chain[1]) * scale;
  }
  return (part[0] + part[1]) + (part[2] + part[3]);
}

void score_keys_ref(const plan::QueryPack& query, const plan::KeyTile& tile,
                    const std::uint16_t* pick, int count, float* scores, ActiveHeads* active) {
  float dots[128];
  for (int n = 0; n < count; ++n) {
    const int key = pick != nullptr ? pick[n] : n;
    ActiveHeads bits{};
    for (int h = 0; h < query.heads; ++h) {
      const std::int64_t exact = exact_dot(query, tile, h, key);
      dots[h] = static_cast<float>(static_cast<double>(exact)) * 0x1p-18F;
      if (dots[h] > 0.0F) bits.word[h / 64] |= std::uint64_t{1} << (h % 64);
    }
    scores[n] = score_chain_ref(dots, query.weights, query.heads, tile.scale[key]);
    if (active != nullptr) active[n] = bits;
  }
}

int refine_keys_ref(const plan::QueryPack& query, const plan::KeyTile& tile,
                    const plan::AllHeadsOperand& all_heads, LowerBound guarded,
                    const std::uint16_t* pick, int count, std::uint16_t* kept, float* scores,
                    float* bounds) {
  int left = 0;
  for (int n = 0; n < count; ++n) {
    const int key = pick[n];
    float sum = std::fma(all_heads.norm_term, tile.norm[key], all_heads.floor);
    sum = std::fma(all_heads.low_term, tile.low_norm[key], sum);
    for (int h = 0; h < query.heads; ++h) {
      std::int32_t dot = 0;
      for (int j = 0; j < tile.head_dim / 2; ++j) {
        const std::int32_t pair = query.pairs[j * query.padded_heads + h];
        const std::int16_t* row = tile.rows + key * tile.head_dim + 2 * j;
        dot += static_cast<std::int16_t>(pair & 0xFFFF) * row[0] + (pair >> 16) * row[1];
      }
      sum = std::fma(all_heads.coefficient[h], relu(static_cast<float>(dot)), sum);
    }
    const UpperBound bound(sum * tile.factor[key]);
    if (bounds != nullptr) bounds[n] = bound.value;
    if (rejects(bound, guarded)) continue;
    kept[left] = pick[n];
    score_keys_ref(query, tile, pick + n, 1, scores + left++, nullptr);
  }
  return left;
}

}  // namespace dosa::refine
