// SPDX-License-Identifier: Apache-2.0
// One row meets one tile: score every key, or screen and refine what survives.
#include <bit>
#include <cmath>
#include <limits>

#include "engine/row_group.hpp"

namespace dosa::engine {
namespace {

// `auto` looks at a row's survival this often, and scores this many keys before it screens again.
constexpr std::int64_t kReviewKeys = 2048;
constexpr std::int64_t kPauseKeys = 16384;

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
  const float threshold = options_.threshold == DOSA_THRESHOLD_FIXED ? state.fixed_threshold
                                                                     : state.records.threshold();
  const bool rejects_nothing = threshold == -std::numeric_limits<float>::infinity();
  if (state.path == RowPath::kScoreAll || rejects_nothing) {
    score_all(state, mask);
  } else if (state.path == RowPath::kAllHeads || state.resume_after > 0) {
    state.resume_after -= keys;
    screen_and_refine(state, mask, threshold, state.all_heads);
  } else {
    screen_and_refine(state, mask, threshold, state.operand);
  }
}

void RowGroup::score_all(RowState& state, const screen::Survivors& mask) {
  const int count = list_bits(mask, pick_);
  const bool whole = count == tile_.count;
  refine::score_keys(state.query, tile_, whole ? nullptr : pick_, count, scores_, nullptr);
  for (int n = 0; n < count; ++n) state.records.offer(scores_[n], tile_.id(whole ? n : pick_[n]));
  state.stats.fully_scored += count;
  state.records.reserve();
}

void RowGroup::screen_and_refine(RowState& state, const screen::Survivors& mask, float threshold,
                                 const plan::ScreenOperand& operand) {
  screen::Survivors survivors =
      screen::screen_tile(operand, tile_, screen::guarded_threshold(threshold), bounds_);
  if (audit_ != nullptr) {
    screen::Survivors rejected{};
    for (std::size_t w = 0; w < mask.size(); ++w) rejected[w] = mask[w] & ~survivors[w];
    audit_rejections(state, rejected);
  }
  for (std::size_t w = 0; w < mask.size(); ++w) survivors[w] &= mask[w];
  const int screened = count_bits(mask);
  const int count = list_bits(survivors, pick_);
  const std::int64_t offered = state.records.offered();
  refine::score_keys(state.query, tile_, pick_, count, scores_, nullptr);
  const bool keep_all = options_.mode == DOSA_MODE_SCREEN;
  for (int n = 0; n < count; ++n) {
    const Record record = make_record(score_code(scores_[n]), tile_.id(pick_[n]));
    if (keep_all) {
      state.records.keep(record);
    } else {
      state.records.offer(record);
    }
  }
  if (&operand == &state.operand) {
    count_screened(state, screened, count, threshold);
    state.recent_records += state.records.offered() - offered;
    if (options_.mode == DOSA_MODE_AUTO) review_path(state);
  } else {
    state.stats.fully_scored += screened;
  }
  state.records.reserve();
}

/// pick_, bounds_ and scores_ hold the survivors of a screened tile.
void RowGroup::count_screened(RowState& state, int screened, int survivors, float threshold) {
  for (int n = 0; n < survivors; ++n) {
    const double slack = static_cast<double>(bounds_[pick_[n]]) - scores_[n];
    if (!std::isfinite(slack)) continue;  // a key without a valid bound
    state.slack_sum += slack;
    ++state.slack_count;
  }
  state.stats.screened += screened;
  state.stats.fully_scored += survivors;
  state.stats.last_threshold = threshold;
  state.stats.heads = state.certificate.num_retained;
  state.threshold_sum += static_cast<double>(threshold) * screened;
  state.recent_screened += screened;
  state.recent_survivors += survivors;
}

/// `auto` may have been wrong about a row: where all heads would cost less, screening pauses.
void RowGroup::review_path(RowState& state) {
  if (state.recent_screened < kReviewKeys) return;
  const auto keys = static_cast<double>(state.recent_screened);
  const double saved = cost_.screen(state.all_heads.rows, problem_.head_dim).value -
                       cost_.screen(state.operand.rows, problem_.head_dim).value;
  const double extra = static_cast<double>(state.recent_survivors - state.recent_records) / keys *
                       cost_.score(problem_.num_heads, problem_.head_dim).value;
  if (extra > saved) state.resume_after = kPauseKeys;
  state.recent_screened = state.recent_survivors = state.recent_records = 0;
}

/// Every rejected key must score below its bound, and its bound below the threshold.
void RowGroup::audit_rejections(const RowState& state, const screen::Survivors& rejected) {
  const int count = list_bits(rejected, pick_);
  refine::score_keys(state.query, tile_, pick_, count, scores_, nullptr);
  for (int n = 0; n < count; ++n) {
    audit_->add(state.row, tile_.id(pick_[n]), screen::certified_bound(bounds_[pick_[n]]).value,
                scores_[n]);
  }
}

}  // namespace dosa::engine
