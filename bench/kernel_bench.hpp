// SPDX-License-Identifier: Apache-2.0
// The engine's kernels as the engine meets them: a few tiles of keys and a group of rows that take
// turns, so that the packed queries and the tiles come from the second-level cache.
#ifndef DOSA_BENCH_KERNEL_BENCH_HPP
#define DOSA_BENCH_KERNEL_BENCH_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "dosa/dosa.h"
#include "measure.hpp"
#include "numeric/arena.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "plan/operands.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace dosa::bench {

inline constexpr int kBenchTiles = 4;
inline constexpr int kBenchRows = 16;

/// Memory for an arena's pieces.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), base_(new std::byte[bytes + kSlack]) {}
  [[nodiscard]] Arena arena() { return Arena(align_workspace(base_.get())); }
  void check(const Arena& arena) const {
    if (arena.used() > bytes_) throw std::runtime_error("the arena's memory is too small");
  }

 private:
  static constexpr std::size_t kSlack = Arena::kAlignment;
  std::size_t bytes_;
  std::unique_ptr<std::byte[]> base_;
};

/// Tiles and rows of `heads` heads and `dim` coordinates cut from a trace's codes. Heads and rows
/// beyond the trace's go on with its next rows; with fewer coordinates a code vector serves as
/// several.
class KernelBench {
 public:
  KernelBench(const dosa_problem& problem, int heads, int dim)
      : heads_(heads), dim_(dim), memory_(kMemory), arena_(memory_.arena()) {
    const std::int64_t queries = problem.num_queries * problem.num_heads * problem.head_dim /
                                 (static_cast<std::int64_t>(heads) * dim);
    const std::int64_t keys = problem.num_keys * problem.head_dim / dim;
    if (queries < kBenchRows || keys < kBenchTiles * plan::kTileKeys) {
      throw std::runtime_error("the trace is too small to calibrate on");
    }
    source_ = {problem.k, dim, problem.k_scale};
    codes_ = problem.q;
    weights_ = problem.weights;
    for (plan::KeyTile& tile : tiles_) {
      tile.place(arena_, plan::kTileKeys, dim, plan::simd_lanes(), 0, true);
    }
    scratch_.place(arena_, heads, dim);
    for (int r = 0; r < kBenchRows; ++r) {
      rows_[r].query.place(arena_, heads, dim);
      rows_[r].split.place(arena_, heads, dim);
      rows_[r].all_heads.place(arena_, heads);
      rows_[r].operand.place(arena_, heads + plan::kMaxAuxiliary, dim);
      pack(r);
      plan::build_all_heads(rows_[r].split, rows_[r].query.weights, heads, dim, scratch_,
                            rows_[r].all_heads);
    }
    memory_.check(arena_);
    for (int t = 0; t < kBenchTiles; ++t) build(t);
  }

  void pack(int r) {
    plan::pack_query(codes_ + static_cast<std::ptrdiff_t>(r) * heads_ * dim_,
                     weights_ + static_cast<std::ptrdiff_t>(r) * heads_, rows_[r].query,
                     rows_[r].split);
  }
  void build(int t) {
    plan::build_tile(source_, static_cast<std::int64_t>(t) * plan::kTileKeys, nullptr,
                     plan::kTileKeys, tiles_[t]);
  }
  /// The first tile from a list, without the columns that only screening needs.
  void build_listed(const std::int32_t* ids) {
    plan::KeyTile list = tiles_[0];
    list.columns = nullptr;
    plan::build_tile(source_, 0, ids, plan::kTileKeys, list);
  }

  /// A certificate of `retained` heads for every row; returns the screening rows of the first.
  int certify(int retained) {
    plan::CertificateOptions options;
    options.retained = retained;
    for (Row& row : rows_) {
      const plan::Certificate certificate = plan::make_certificate(
          row.split, row.query.weights, heads_, dim_, plan::ActivationStatistics{}, options);
      plan::build_operand(certificate, row.split, row.query.weights, row.operand);
    }
    return rows_[0].operand.rows;
  }
  /// Any number of screening rows: those of the certificates, again and again.
  void set_screening_rows(int rows) {
    for (Row& row : rows_) row.operand.rows = rows;
  }

  void screen_all() {
    alignas(Arena::kAlignment) float bounds[plan::kTileKeys];
    for (const plan::KeyTile& tile : tiles_) {
      for (const Row& row : rows_) {
        survivors_ += screen::screen_tile(row.operand, tile, LowerBound(0.0F), bounds)[0] & 1;
      }
    }
  }
  void score_all() {
    alignas(Arena::kAlignment) float scores[plan::kTileKeys];
    for (const plan::KeyTile& tile : tiles_) {
      for (const Row& row : rows_) {
        refine::score_keys(row.query, tile, nullptr, plan::kTileKeys, scores, nullptr);
        sum_ += scores[0];
      }
    }
  }
  /// `count` keys of every tile, none of which reaches the threshold.
  void refine_some(const std::uint16_t* pick, int count) {
    alignas(Arena::kAlignment) float scores[plan::kTileKeys];
    std::uint16_t kept[plan::kTileKeys];
    const LowerBound guarded(std::numeric_limits<float>::max());
    for (const plan::KeyTile& tile : tiles_) {
      for (const Row& row : rows_) {
        survivors_ += static_cast<std::uint64_t>(refine::refine_keys(
            row.query, tile, row.all_heads, guarded, pick, count, kept, scores, nullptr));
      }
    }
  }

  /// What the calls returned, so that none is left out.
  [[nodiscard]] double checksum() const { return sum_ + static_cast<double>(survivors_); }

 private:
  static constexpr std::size_t kMemory = std::size_t{64} << 20;

  struct Row {
    plan::QueryPack query;
    plan::QueryRows split;
    plan::AllHeadsOperand all_heads;
    plan::ScreenOperand operand;
  };

  int heads_, dim_;
  Memory memory_;
  Arena arena_;
  plan::KeySource source_{};
  const std::uint8_t* codes_ = nullptr;
  const float* weights_ = nullptr;
  plan::KeyTile tiles_[kBenchTiles];
  Row rows_[kBenchRows];
  plan::ScreenOperand scratch_;
  double sum_ = 0.0;
  std::uint64_t survivors_ = 0;
};

}  // namespace dosa::bench

#endif  // DOSA_BENCH_KERNEL_BENCH_HPP
