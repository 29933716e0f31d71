// SPDX-License-Identifier: Apache-2.0
// One row meets one tile: score every key, or screen and refine what survives.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/row_group.hpp"

namespace dosa::engine {
namespace {

// `auto` looks at a row's survival this often.
constexpr std::int64_t kReviewKeys = 2048;

/// Positions of the set bits.
int list_bits(const screen::Survivors& mask, std::uint16_t* pick) {
  int count = 0;
  for (std::size_t word = 0; word < mask.size(); ++word) {
    for (std::uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      pick[count++] =
          static_cast<std::uint16_t>(64 * static_cast<int>(word) + std::countr_zero(bits));
    }
  }
  return count;
}

int count_bits(const screen::Survivors& mask) {
  int count = 0;
  for (const std::uint64_t word : mask) count += std::popcount(word);
  return count;
}

}  // namespace

/// mask: keys of the tile that the row sees, that are not forced and not scored yet.
void RowGroup::visit_tile(RowState& state, const screen::Survivors& mask) {
  const int keys = count_bits(mask);
  if (keys == 0) return;
  state.scanned += keys;
  const float threshold = options_.threshold == DOSA_THRESHOLD_FIXED ? state.fixed_threshold
                                                                     : state.records.threshold();
  const bool rejects_nothing = threshold == -std::numeric_limits<float>::infinity();
  if (state.path == RowPath::kScoreAll || rejects_nothing) {
    score_all(state, mask);
  } else if (state.path == RowPath::kAllHeads || state.resume_after > 0) {
    state.resume_after -= keys;
    pass_all_heads(state, mask, screen::guarded_threshold(threshold));
  } else {
    screen_and_refine(state, mask, threshold);
  }
  state.records.reserve();
}

void RowGroup::score_all(RowState& state, const screen::Survivors& mask) {
  const int count = list_bits(mask, pick_);
  const bool whole = count == tile_.count;
  refine::score_keys(state.query, tile_, whole ? nullptr : pick_, count, scores_, nullptr);
  for (int n = 0; n < count; ++n) state.records.offer(scores_[n], tile_.id(whole ? n : pick_[n]));
  state.stats.fully_scored += count;
}

void RowGroup::pass_all_heads(RowState& state, const screen::Survivors& mask, LowerBound guarded) {
  const int count = list_bits(mask, pick_);
  const int kept = refine_picked(state, count, guarded);
  for (int n = 0; n < kept; ++n) state.records.offer(scores_[n], tile_.id(kept_[n]));
  state.stats.fully_scored += count;
}

/// Exact scores, to kept_ and scores_, of the keys in pick_ that may reach the threshold.
int RowGroup::refine_picked(RowState& state, int count, LowerBound guarded) {
  if (audit_ != nullptr) audit_refine(state, count, guarded);
  return refine::refine_keys(state.query, tile_, state.all_heads, guarded, pick_, count, kept_,
                             scores_, nullptr);
}

void RowGroup::screen_and_refine(RowState& state, const screen::Survivors& mask, float threshold) {
  const LowerBound guarded = screen::guarded_threshold(threshold);
  screen::Survivors survivors = screen::screen_tile(state.operand, tile_, guarded, bounds_);
  if (audit_ != nullptr) {
    screen::Survivors rejected{};
    for (std::size_t w = 0; w < mask.size(); ++w) rejected[w] = mask[w] & ~survivors[w];
    audit_screen(state, rejected);
  }
  for (std::size_t w = 0; w < mask.size(); ++w) survivors[w] &= mask[w];
  const int count = list_bits(survivors, pick_);
  int kept = count;
  if (options_.mode == DOSA_MODE_SCREEN) {  // all survivors' scores are written
    refine::score_keys(state.query, tile_, pick_, count, scores_, nullptr);
    std::copy(pick_, pick_ + count, kept_);
    for (int n = 0; n < count; ++n) {
      state.records.keep(make_record(score_code(scores_[n]), tile_.id(pick_[n])));
    }
  } else {
    kept = refine_picked(state, count, guarded);
    for (int n = 0; n < kept; ++n) state.records.offer(scores_[n], tile_.id(kept_[n]));
  }
  count_screened(state, count_bits(mask), count, threshold);
  add_slack(state, kept);
  if (options_.mode == DOSA_MODE_AUTO) review_path(state);
}

void RowGroup::count_screened(RowState& state, int screened, int survivors, float threshold) {
  state.stats.screened += screened;
  state.stats.fully_scored += survivors;
  state.stats.last_threshold = threshold;
  state.stats.heads = state.certificate.num_retained;
  state.threshold_sum += static_cast<double>(threshold) * screened;
  state.recent_screened += screened;
  state.recent_survivors += survivors;
}

/// Slack of the keys whose exact score is known: kept_, scores_ and bounds_ of the tile.
void RowGroup::add_slack(RowState& state, int kept) const {
  for (int n = 0; n < kept; ++n) {
    const double slack = static_cast<double>(bounds_[kept_[n]]) - scores_[n];
    if (!std::isfinite(slack)) continue;  // a key without a valid bound
    state.slack_sum += slack;
    ++state.slack_count;
  }
}

/// `auto` may have been wrong about a row: where all heads would cost less, screening pauses. The
/// threshold rises with the logarithm of the keys seen, so the pause is as long as the scan was.
void RowGroup::review_path(RowState& state) {
  if (state.recent_screened < kReviewKeys) return;
  const auto keys = static_cast<double>(state.recent_screened);
  // With all heads, every key costs a refinement; with a few, each is screened and the survivors
  // are refined. Records need the exact score either way.
  const double refine = cost_.refine(problem_.num_heads, problem_.head_dim).value;
  const double saved = refine - cost_.screen(state.operand.rows, problem_.head_dim).value;
  const double extra = static_cast<double>(state.recent_survivors) / keys * refine;
  if (extra > saved) state.resume_after = state.scanned;
  state.recent_screened = state.recent_survivors = 0;
}

/// Every key that screening rejects must score below its bound.
void RowGroup::audit_screen(const RowState& state, const screen::Survivors& rejected) {
  const int count = list_bits(rejected, pick_);
  refine::score_keys(state.query, tile_, pick_, count, scores_, nullptr);
  for (int n = 0; n < count; ++n) {
    audit_->add(state.row, tile_.id(pick_[n]), screen::certified_bound(bounds_[pick_[n]]).value,
                scores_[n]);
  }
}

/// The same for the keys of pick_ that the bound over all heads rejects.
void RowGroup::audit_refine(const RowState& state, int count, LowerBound guarded) {
  float exact[plan::kTileKeys];
  refine::score_keys(state.query, tile_, pick_, count, exact, nullptr);
  refine::refine_keys(state.query, tile_, state.all_heads, guarded, pick_, count, kept_, scores_,
                      refined_bounds_);
  for (int n = 0; n < count; ++n) {
    if (!rejects(UpperBound(refined_bounds_[n]), guarded)) continue;
    audit_->add(state.row, tile_.id(pick_[n]), screen::certified_bound(refined_bounds_[n]).value,
                exact[n]);
  }
}

}  // namespace dosa::engine
