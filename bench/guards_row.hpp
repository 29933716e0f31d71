// SPDX-License-Identifier: Apache-2.0
// One row of an input, its exact scores, and how many keys survive a bound that a study makes: for
// bench_guards and bench_rms, which vary what the engine does not let vary.
#ifndef DOSA_BENCH_GUARDS_ROW_HPP
#define DOSA_BENCH_GUARDS_ROW_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/schedule.hpp"
#include "numeric/arena.hpp"
#include "numeric/order.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"
#include "select/records.hpp"

namespace dosa::bench {

/// Shares of visible keys that survive, and how far bounds lie above scores.
struct Survival {
  double perfect = 0.0;  // at the true K-th score
  double rising = 0.0;   // during a scan that starts from a sample, in the engine's order of tiles
  double slack = 0.0;    // mean of bound - score, in standard deviations of the row's scores
};

class StudiedRow {
 public:
  /// Scores all keys of the row and counts which heads fire on the hard part of a sample.
  StudiedRow(const dosa_problem& problem, std::int64_t row)
      : problem_(problem),
        window_{problem.k_start[row], std::min<std::int64_t>(problem.k_end[row], problem.num_keys)},
        weights_(problem.weights + row * problem.weights_stride) {
    Arena counter;
    place(counter);
    memory_.resize(counter.used() + Arena::kAlignment);
    Arena arena(align_workspace(memory_.data()));
    place(arena);
    plan::pack_query(problem.q + row * problem.q_stride, weights_, query_, rows_);
    score();
  }
  StudiedRow(const StudiedRow&) = delete;
  StudiedRow& operator=(const StudiedRow&) = delete;

  [[nodiscard]] const plan::QueryRows& rows() const { return rows_; }
  [[nodiscard]] const plan::ScreenOperand& operand() const { return operand_; }
  [[nodiscard]] const plan::ActivationStatistics& statistics() const { return statistics_; }
  [[nodiscard]] const float* weights() const { return weights_; }
  [[nodiscard]] std::int64_t length() const { return window_.length(); }

  [[nodiscard]] plan::Certificate certify(const plan::CertificateOptions& options) const {
    return plan::make_certificate(rows_, weights_, problem_.num_heads, problem_.head_dim,
                                  statistics_, options);
  }

  /// The operand of a certificate; `change` may take terms out or replace them.
  using Change = std::function<void(plan::Certificate&, plan::Envelope&)>;
  plan::Envelope build(plan::Certificate certificate, const Change& change = nullptr) {
    plan::Envelope envelope = plan::build_operand(certificate, rows_, weights_, operand_);
    if (change != nullptr) {
      change(certificate, envelope);
      plan::set_terms(certificate, envelope, operand_);
    }
    return envelope;
  }

  /// What survives the operand built last. `guarded`: thresholds and bounds as the engine takes
  /// them; otherwise computed numbers are compared as they are.
  /// Throws: std::runtime_error where a guarded bound lies below its score.
  Survival measure(bool guarded) {
    std::vector<float> bounds(scores_.size() + plan::kTileKeys);
    tile_.groups = operand_.groups;
    for (std::int64_t begin = 0; begin < length(); begin += plan::kTileKeys) {
      build_tile(begin);
      alignas(Arena::kAlignment) float computed[plan::kTileKeys];
      screen::screen_tile(operand_, tile_, LowerBound(0.0F), computed);
      std::copy(computed, computed + tile_.count, bounds.begin() + begin);
    }
    const auto survives = [&](std::int64_t i, float tau) {
      const LowerBound threshold = guarded ? screen::guarded_threshold(tau) : LowerBound(tau);
      return !rejects(UpperBound(bounds[static_cast<std::size_t>(i)]), threshold);
    };
    Survival result;
    const auto keys = static_cast<double>(length());
    for (std::int64_t i = 0; i < length(); ++i) {
      const float bound = bounds[static_cast<std::size_t>(i)];
      result.perfect += survives(i, kth_) ? 1 / keys : 0.0;
      const double certified = guarded ? screen::certified_bound(bound).value : bound;
      if (guarded && certified < scores_[static_cast<std::size_t>(i)]) {
        throw std::runtime_error("a score lies above its bound");
      }
      result.slack += (certified - scores_[static_cast<std::size_t>(i)]) / keys / deviation_;
    }
    result.rising = rising(survives) / keys;
    return result;
  }

 private:
  void place(Arena& arena) {
    tile_.place(arena, plan::kTileKeys, problem_.head_dim, plan::simd_lanes(), plan::kMaxGroups,
                true);
    query_.place(arena, problem_.num_heads, problem_.head_dim);
    rows_.place(arena, problem_.num_heads, problem_.head_dim);
    operand_.place(arena, problem_.num_heads + plan::kMaxAuxiliary, problem_.head_dim);
    records_.place(arena, problem_.topk, plan::kTileKeys);
  }

  void build_tile(std::int64_t begin) {
    const plan::KeySource keys{problem_.k, problem_.k_stride, problem_.k_scale};
    const auto count = static_cast<int>(std::min<std::int64_t>(plan::kTileKeys, length() - begin));
    plan::build_tile(keys, window_.begin + begin, nullptr, count, tile_);
  }

  void score() {
    std::vector<refine::ActiveHeads> active(static_cast<std::size_t>(length()));
    scores_.resize(static_cast<std::size_t>(length()));
    tile_.groups = 0;
    for (std::int64_t begin = 0; begin < length(); begin += plan::kTileKeys) {
      build_tile(begin);
      refine::score_keys(query_, tile_, nullptr, tile_.count, scores_.data() + begin,
                         active.data() + begin);
    }
    std::vector<float> sorted = scores_;
    const auto kth = sorted.begin() + problem_.topk - 1;
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    kth_ = *kth;
    double sum = 0.0;
    double squares = 0.0;
    for (const double s : scores_) sum += s, squares += s * s;
    const auto keys = static_cast<double>(length());
    deviation_ = std::sqrt(squares / keys - sum / keys * (sum / keys));
    count_active(active);
  }

  /// Frequencies on the best quarter of a sample, winners left out, as the engine counts them.
  void count_active(const std::vector<refine::ActiveHeads>& active) {
    sample_.resize(static_cast<std::size_t>(std::min<std::int64_t>(1024, length() / 8)));
    engine::spread_sample({0, length()}, static_cast<int>(sample_.size()), sample_.data());
    const auto score_of = [&](std::int32_t id) { return scores_[static_cast<std::size_t>(id)]; };
    std::vector<float> ordinary;
    for (const std::int32_t id : sample_) {
      if (score_of(id) < kth_) ordinary.push_back(score_of(id));
    }
    if (ordinary.empty()) return;
    const auto cut = static_cast<std::ptrdiff_t>(ordinary.size() - 1 - ordinary.size() / 4);
    std::nth_element(ordinary.begin(), ordinary.begin() + cut, ordinary.end());
    const float least = ordinary[static_cast<std::size_t>(cut)];
    for (const std::int32_t id : sample_) {
      if (score_of(id) >= kth_ || score_of(id) < least) continue;
      ++statistics_.samples;
      for (int h = 0; h < problem_.num_heads; ++h) {
        const std::uint64_t word = active[static_cast<std::size_t>(id)].word[h / 64];
        statistics_.active[static_cast<std::size_t>(h)] +=
            static_cast<std::int32_t>(word >> (h % 64) & 1);
      }
    }
  }

  /// Keys that need a full score in a scan with a rising threshold, the sample among them.
  template <typename Survives>
  double rising(const Survives& survives) {
    records_.clear();
    std::vector<bool> known(scores_.size());
    for (const std::int32_t id : sample_) {
      known[static_cast<std::size_t>(id)] = true;
      records_.offer(scores_[static_cast<std::size_t>(id)], id);
      records_.reserve();
    }
    records_.reduce();
    auto scored = static_cast<double>(sample_.size());
    const engine::TileOrder order({0, length()});
    for (std::int64_t t = 0; t < order.size(); ++t) {
      for (std::int64_t i = order[t].begin; i < order[t].end; ++i) {
        if (known[static_cast<std::size_t>(i)] || !survives(i, records_.threshold())) continue;
        scored += 1;
        records_.offer(scores_[static_cast<std::size_t>(i)], static_cast<std::int32_t>(i));
      }
      records_.reserve();
    }
    return scored;
  }

  dosa_problem problem_;
  engine::Window window_;
  const float* weights_;
  std::vector<std::byte> memory_;
  plan::KeyTile tile_;
  plan::QueryPack query_;
  plan::QueryRows rows_;
  plan::ScreenOperand operand_;
  select::RecordBuffer records_;
  std::vector<float> scores_;
  std::vector<std::int32_t> sample_;
  plan::ActivationStatistics statistics_;
  float kth_ = 0.0F;
  double deviation_ = 1.0;
};

}  // namespace dosa::bench

#endif  // DOSA_BENCH_GUARDS_ROW_HPP
