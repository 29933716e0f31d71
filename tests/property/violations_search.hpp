// SPDX-License-Identifier: Apache-2.0
//
// Looks for a score above its bound by mutation and selection, without gradients: one query row
// with its plan, and a tile of keys that are all variants of the best one so far. What is driven
// down is the share of the rounding guard that is left, (U - s) / guard.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "numeric/arena.hpp"
#include "oracle/generate.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "plan/operands.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace dosa::test {

/// One row, how it is planned, and the key that comes closest to its bound.
struct Candidate {
  std::vector<std::uint8_t> q;  // (H, D)
  std::vector<float> weights;   // (H)
  std::vector<std::uint8_t> k;  // (D)
  float scale = 1.0F;
  plan::CertificateOptions options;
  plan::ActivationStatistics statistics;
};

enum class Bound { kScreening, kAllHeads };

/// Takes a term out of an envelope, to see whether the search finds what the term is for.
using Change = std::function<void(plan::Envelope&)>;

/// What was seen of one kind of bound.
struct Seen {
  std::int64_t pairs = 0;                                       // with a finite bound
  std::int64_t unbounded = 0;                                   // never pruned: no bound to test
  std::int64_t violations = 0;                                  // s > U, or s not finite
  double least_left = std::numeric_limits<double>::infinity();  // of (U - s) / guard
  double least_margin =
      std::numeric_limits<double>::infinity();  // of U - s, in 2^-24 sum |w||q||k|
};

/// The least share of the guard that is left in a tile, and the key that it belongs to.
struct Closest {
  double left = std::numeric_limits<double>::infinity();
  int key = 0;
  float score = 0.0F;
};

/// Plans rows of one shape and compares bounds with scores, 256 keys at a time.
class PairTester {
 public:
  static constexpr int kKeys = plan::kTileKeys;

  PairTester(int heads, int head_dim)
      : heads_(heads), head_dim_(head_dim), memory_(std::make_unique<std::byte[]>(kBytes)) {
    Arena arena(align_workspace(memory_.get()));
    tile_.place(arena, kKeys, head_dim, plan::simd_lanes(), plan::kMaxGroups, true);
    pack_.place(arena, heads, head_dim);
    rows_.place(arena, heads, head_dim);
    operand_.place(arena, heads + plan::kMaxAuxiliary, head_dim);
    scratch_.place(arena, heads + plan::kMaxAuxiliary, head_dim);
    all_heads_.place(arena, heads);
    for (int i = 0; i < kKeys; ++i) {
      pick_[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
    }
  }

  [[nodiscard]] int heads() const { return heads_; }
  [[nodiscard]] int head_dim() const { return head_dim_; }

  /// Plans the row; false where it may not be screened.
  bool plan_row(const Candidate& c, Bound bound, const Change& change) {
    plan::pack_query(c.q.data(), c.weights.data(), pack_, rows_);
    if (!pack_.finite) return false;
    plan::CertificateOptions options = c.options;
    if (bound == Bound::kAllHeads) options = all_heads_options();
    const plan::Certificate certificate =
        plan::make_certificate(rows_, c.weights.data(), heads_, head_dim_, c.statistics, options);
    envelope_ = plan::build_operand(certificate, rows_, c.weights.data(), operand_);
    if (envelope_.strength > plan::kRowStrengthLimit) return false;
    tile_.groups = certificate.groups;
    if (bound == Bound::kAllHeads) {
      plan::build_all_heads(rows_, c.weights.data(), heads_, head_dim_, scratch_, all_heads_);
    }
    if (change == nullptr) return true;
    plan::Envelope changed = envelope_;
    change(changed);
    plan::set_terms(certificate, changed, operand_);
    all_heads_.norm_term = operand_.norm_term;
    all_heads_.low_term = operand_.low_term;
    all_heads_.floor = operand_.floor;
    return true;
  }

  /// Bounds and scores of the keys, codes (256, D) and scales (256).
  Closest compare(const std::uint8_t* codes, const float* scales, Bound bound, Seen& seen) {
    const plan::KeySource keys{codes, head_dim_, scales};
    plan::build_tile(keys, 0, nullptr, kKeys, tile_);
    constexpr LowerBound kNothingRejected(-std::numeric_limits<float>::infinity());
    if (bound == Bound::kScreening) {
      screen::screen_tile(operand_, tile_, kNothingRejected, bounds_.data());
      refine::score_keys(pack_, tile_, nullptr, kKeys, scores_.data(), nullptr);
    } else {
      std::array<std::uint16_t, kKeys> kept{};
      refine::refine_keys(pack_, tile_, all_heads_, kNothingRejected, pick_.data(), kKeys,
                          kept.data(), scores_.data(), bounds_.data());
    }
    Closest closest;
    for (int i = 0; i < kKeys; ++i) {
      const double left = left_of(i, seen);
      if (left < closest.left) closest = {left, i, scores_[static_cast<std::size_t>(i)]};
    }
    return closest;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;

  [[nodiscard]] plan::CertificateOptions all_heads_options() const {
    plan::CertificateOptions options;
    options.retained = heads_;
    return options;
  }

  /// (U - s) / guard of one key; +Inf where it has no bound.
  double left_of(int i, Seen& seen) const {
    const float u = screen::certified_bound(bounds_[static_cast<std::size_t>(i)]).value;
    const float s = scores_[static_cast<std::size_t>(i)];
    if (!std::isfinite(u)) {
      ++seen.unbounded;
      return std::numeric_limits<double>::infinity();
    }
    ++seen.pairs;
    if (!std::isfinite(s) || u < s) ++seen.violations;
    if (!std::isfinite(s)) return -1.0;
    const double factor = tile_.factor[i];
    const double norm = tile_.norm[i];
    const double raw =
        (envelope_.reconstruction + envelope_.reference + envelope_.screening) * norm +
        envelope_.low * tile_.low_norm[i];
    const double guard = (raw * envelope_.growth + envelope_.floor) * factor +
                         std::fabs(static_cast<double>(u)) * 0x1p-23 + 0x1p-147;
    const double margin = static_cast<double>(u) - s;
    const double unit = kUnitRoundoff * envelope_.strength * norm * factor;
    seen.least_left = std::min(seen.least_left, margin / guard);
    if (unit > 0x1p-120) seen.least_margin = std::min(seen.least_margin, margin / unit);
    return margin / guard;
  }

  int heads_, head_dim_;
  std::unique_ptr<std::byte[]> memory_;
  plan::KeyTile tile_;
  plan::QueryPack pack_;
  plan::QueryRows rows_;
  plan::ScreenOperand operand_, scratch_;
  plan::AllHeadsOperand all_heads_;
  plan::Envelope envelope_;
  alignas(Arena::kAlignment) std::array<float, kKeys> bounds_{}, scores_{};
  std::array<std::uint16_t, kKeys> pick_{};
};

}  // namespace dosa::test
