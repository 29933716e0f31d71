// SPDX-License-Identifier: Apache-2.0
#include "study_scores.hpp"

#include <algorithm>

#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace dosa::cli {
namespace {

engine::Window visible(const dosa_problem& problem, std::int64_t row) {
  const std::int64_t keys = problem.num_keys;
  const std::int64_t begin = std::clamp<std::int64_t>(problem.k_start[row], 0, keys);
  return {begin, std::clamp<std::int64_t>(problem.k_end[row], begin, keys)};
}

int tile_length(const engine::Window& window, std::int64_t begin) {
  return static_cast<int>(std::min<std::int64_t>(plan::kTileKeys, window.end - begin));
}

}  // namespace

StudyRow::StudyRow(const dosa_problem& problem, std::int64_t row)
    : problem_(problem),
      window_(visible(problem, row)),
      keys_{problem.k, problem.k_stride, problem.k_scale},
      memory_([this](Arena& arena) {
        tile_.place(arena, plan::kTileKeys, problem_.head_dim, plan::simd_lanes(), 0, true);
        query_.place(arena, problem_.num_heads, problem_.head_dim);
        rows_.place(arena, problem_.num_heads, problem_.head_dim);
      }) {
  plan::pack_query(problem.q + row * problem.q_stride,
                   problem.weights + row * problem.weights_stride, query_, rows_);
}

std::vector<float> StudyRow::scores() {
  std::vector<float> result(static_cast<std::size_t>(window_.length()));
  for (std::int64_t begin = window_.begin; begin < window_.end; begin += plan::kTileKeys) {
    const int length = tile_length(window_, begin);
    plan::build_tile(keys_, begin, nullptr, length, tile_);
    refine::score_keys(query_, tile_, nullptr, length, result.data() + (begin - window_.begin),
                       nullptr);
  }
  return result;
}

plan::ActivationStatistics StudyRow::activity(const std::vector<std::int32_t>& ids) {
  plan::ActivationStatistics statistics;
  plan::KeyTile list = tile_;  // the same memory, without the columns that only screening needs
  list.columns = nullptr;
  float scores[plan::kTileKeys];
  refine::ActiveHeads active[plan::kTileKeys];
  for (std::size_t begin = 0; begin < ids.size(); begin += plan::kTileKeys) {
    const int length = static_cast<int>(std::min<std::size_t>(plan::kTileKeys, ids.size() - begin));
    plan::build_tile(keys_, 0, ids.data() + begin, length, list);
    refine::score_keys(query_, list, nullptr, length, scores, active);
    statistics.samples += length;
    for (int n = 0; n < length; ++n) {
      for (int h = 0; h < problem_.num_heads; ++h) {
        statistics.active[static_cast<std::size_t>(h)] +=
            static_cast<std::int32_t>(active[n].word[h / 64] >> (h % 64) & 1);
      }
    }
  }
  return statistics;
}

plan::Certificate StudyRow::certify(const plan::ActivationStatistics& statistics,
                                    const plan::CertificateOptions& options) const {
  return plan::make_certificate(rows_, query_.weights, problem_.num_heads, problem_.head_dim,
                                statistics, options);
}

std::vector<std::vector<float>> StudyRow::bounds(
    const std::vector<plan::Certificate>& certificates) {
  std::vector<plan::ScreenOperand> operands(certificates.size());
  const Placed memory([&](Arena& arena) {
    for (plan::ScreenOperand& operand : operands) {
      operand.place(arena, problem_.num_heads + plan::kMaxAuxiliary, problem_.head_dim);
    }
  });
  std::vector<std::vector<float>> result(certificates.size());
  std::vector<int> groups;
  for (std::size_t n = 0; n < certificates.size(); ++n) {
    plan::build_operand(certificates[n], rows_, query_.weights, operands[n]);
    result[n].resize(static_cast<std::size_t>(window_.length()));
    if (std::find(groups.begin(), groups.end(), operands[n].groups) == groups.end()) {
      groups.push_back(operands[n].groups);
    }
  }
  for (const int count : groups) {
    bounds_of_groups(operands, count, result);
  }
  return result;
}

/// The bounds whose allowance splits the coordinates into `groups`: they share their tiles.
void StudyRow::bounds_of_groups(const std::vector<plan::ScreenOperand>& operands, int groups,
                                std::vector<std::vector<float>>& out) {
  plan::KeyTile tile;
  const Placed memory([&](Arena& arena) {
    tile.place(arena, plan::kTileKeys, problem_.head_dim, plan::simd_lanes(), groups, true);
  });
  alignas(Arena::kAlignment) float bounds[plan::kTileKeys];
  for (std::int64_t begin = window_.begin; begin < window_.end; begin += plan::kTileKeys) {
    const int length = tile_length(window_, begin);
    plan::build_tile(keys_, begin, nullptr, length, tile);
    for (std::size_t n = 0; n < operands.size(); ++n) {
      if (operands[n].groups != groups) continue;
      screen::screen_tile(operands[n], tile, LowerBound(0.0F), bounds);
      std::copy(bounds, bounds + length, out[n].begin() + (begin - window_.begin));
    }
  }
}

}  // namespace dosa::cli
