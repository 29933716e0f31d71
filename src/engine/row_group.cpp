// SPDX-License-Identifier: Apache-2.0
// The course of a group of rows: short rows, pilot, the others, answers.
#include "engine/row_group.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "select/emit.hpp"

namespace dosa::engine {
namespace {

std::int64_t clamp_id(std::int64_t id, std::int64_t num_keys) {
  return std::clamp<std::int64_t>(id, 0, num_keys);
}

/// Modes in which rows have operands; `base` scores every key exactly.
bool certifies(const dosa_options& options) { return options.mode != DOSA_MODE_BASE; }
/// Modes that may leave heads out, and therefore look at a sample first.
bool screens(const dosa_options& options) {
  return certifies(options) && options.mode != DOSA_MODE_FULL;
}

/// Below this many keys the sample alone would be most of what screening could save.
constexpr std::int64_t kLeastScreened = 4096;
// Below this many times K so many keys are near the threshold that no bound pays.
constexpr std::int64_t kLeastPerWinner = 6;
// Below this many times K even the bound over all heads rejects too few keys to pay for itself.
constexpr std::int64_t kLeastBounded = 3;

/// Smallest window that holds all rows' ranked keys.
Window hull(RowState* const* rows, int count) {
  Window window{std::numeric_limits<std::int64_t>::max(), 0};
  for (int n = 0; n < count; ++n) {
    window.begin = std::min(window.begin, rows[n]->ranked.begin);
    window.end = std::max(window.end, rows[n]->ranked.end);
  }
  return window;
}

/// How many of the first rows share a scan: those whose hull is at most twice their longest window.
/// Others would be shown tiles that they cannot see.
int count_overlapping(RowState* const* rows, int count) {
  std::int64_t longest = 0;
  for (int n = 0; n < count; ++n) {
    longest = std::max(longest, rows[n]->ranked.length());
    if (n > 0 && hull(rows, n + 1).length() > 2 * longest) return n;
  }
  return count;
}

bool meet(const Window& a, const Window& b) { return a.begin < b.end && b.begin < a.end; }

/// Bits [begin, end) of a tile's mask.
screen::Survivors range_mask(std::int64_t begin, std::int64_t end) {
  screen::Survivors mask{};
  for (std::int64_t word = 0; word < static_cast<std::int64_t>(mask.size()); ++word) {
    const std::int64_t low = std::clamp<std::int64_t>(begin - 64 * word, 0, 64);
    const std::int64_t high = std::clamp<std::int64_t>(end - 64 * word, 0, 64);
    if (low >= high) continue;
    const std::uint64_t below_high = high == 64 ? ~0ULL : (1ULL << high) - 1;
    mask[static_cast<std::size_t>(word)] = below_high & ~((low == 64 ? 0ULL : 1ULL << low) - 1);
  }
  return mask;
}

}  // namespace

void RowGroup::place(Arena& arena, const dosa_problem& problem, const dosa_options& options,
                     int group_rows) {
  problem_ = problem;
  options_ = options;
  keys_ = {problem.k, problem.k_stride, problem.k_scale};
  const int lanes = plan::simd_lanes();
  const int groups = options.allowance == DOSA_ALLOWANCE_GROUPED ? options.allowance_groups : 0;
  const auto topk = static_cast<std::size_t>(problem.topk);
  states_ = arena.take<RowState>(static_cast<std::size_t>(group_rows));
  RowState counted;  // places pieces while there is no memory yet
  for (int n = 0; n < group_rows; ++n) {
    RowState& state = states_ == nullptr ? counted : *new (states_ + n) RowState();
    state.query.place(arena, problem.num_heads, problem.head_dim);
    if (certifies(options)) {
      state.query_rows.place(arena, problem.num_heads, problem.head_dim);
      state.all_heads.place(arena, problem.num_heads);
    }
    if (screens(options)) {
      state.operand.place(arena, problem.num_heads + plan::kMaxAuxiliary, problem.head_dim);
    }
    state.records.place(arena, problem.topk, plan::kTileKeys);
  }
  if (!certifies(options)) {  // nothing is planned: one scratch serves all rows
    counted.query_rows.place(arena, problem.num_heads, problem.head_dim);
    for (int n = 0; n < group_rows && states_ != nullptr; ++n) {
      states_[n].query_rows = counted.query_rows;
    }
  }
  tile_.place(arena, plan::kTileKeys, problem.head_dim, lanes, groups, screens(options));
  if (certifies(options)) scratch_operand_.place(arena, problem.num_heads, problem.head_dim);
  scratch_ = arena.take<Record>(topk);
  scores_ = arena.take<float>(plan::kTileKeys);
  bounds_ = arena.take<float>(plan::kTileKeys);
  refined_bounds_ = arena.take<float>(plan::kTileKeys);
  pick_ = arena.take<std::uint16_t>(plan::kTileKeys);
  kept_ = arena.take<std::uint16_t>(plan::kTileKeys);
  if (options.mode == DOSA_MODE_BASE) {
    base_scores_ =
        arena.take<float>(static_cast<std::size_t>(group_rows) * kBaseTiles * plan::kTileKeys);
  }
  if (!screens(options)) return;
  for (plan::KeyTile& tile : sample_) {
    tile.place(arena, plan::kTileKeys, problem.head_dim, lanes, groups, true);
  }
  sample_ids_ = arena.take<std::int32_t>(kSampleKeys);
  sample_scores_ = arena.take<float>(kSampleKeys);
  sample_active_ = arena.take<refine::ActiveHeads>(kSampleKeys);
  seed_ids_ = arena.take<std::int32_t>(topk);
  known_ids_ = arena.take<std::int32_t>(topk + kSampleKeys);
}

/// What scoring the row needs.
void RowGroup::pack_row(RowState& state) {
  plan::pack_query(problem_.q + state.row * problem_.q_stride,
                   problem_.weights + state.row * problem_.weights_stride, state.query,
                   state.query_rows);
  state.certifiable = state.query.finite;
}

/// Windows and forced keys of a row.
void RowGroup::start_row(std::int64_t row, RowState& state) {
  const std::int64_t keys = problem_.num_keys;
  state.row = row;
  state.window = {clamp_id(problem_.k_start != nullptr ? problem_.k_start[row] : 0, keys),
                  clamp_id(problem_.k_end != nullptr ? problem_.k_end[row] : keys, keys)};
  state.window.end = std::max(state.window.begin, state.window.end);
  state.stats = {};
  state.stats.visible = state.window.length();
  state.stats.first_threshold = state.stats.last_threshold = state.stats.kth_score =
      state.fixed_threshold = -std::numeric_limits<float>::infinity();
  state.path = RowPath::kScoreAll;
  state.certifiable = false;
  state.slack_sum = state.threshold_sum = 0.0;
  state.slack_count = state.recent_screened = state.recent_survivors = state.resume_after =
      state.scanned = 0;
  state.seed_statistics = {};
  state.records.clear();
  const std::int64_t first = std::min<std::int64_t>(options_.forced_first, state.window.length());
  state.ranked.begin = state.window.begin + first;
  state.ranked.end =
      std::max<std::int64_t>(state.ranked.begin, state.window.end - options_.forced_last);
  // Forced keys compete as +Inf with their ids; more than K of them are settled by the tie rule.
  const std::uint32_t infinite = score_code(std::numeric_limits<float>::infinity());
  const auto force = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end, begin + problem_.topk);
    for (std::int64_t id = begin; id < last; ++id) {
      state.records.keep(make_record(infinite, static_cast<std::int32_t>(id)));
      state.records.reserve();
    }
  };
  force(state.window.begin, state.ranked.begin);
  force(state.ranked.end, state.window.end);
}

Sums RowGroup::run(std::int64_t begin, std::int64_t end, const dosa_output& output) {
  RowState* ranked[kGroupRows];
  int count = 0;
  sums_ = {};
  for (std::int64_t row = begin; row < end; ++row) {
    RowState& state = states_[row - begin];
    start_row(row, state);
    if (state.window.length() <= problem_.topk) {
      finish_short_row(state, output);
    } else if (state.ranked.begin - state.window.begin >= problem_.topk) {
      // The first K keys are forced. No score exceeds +Inf, and no key has a lower id.
      finish_row(state, output);
    } else {
      pack_row(state);
      ranked[count++] = &state;
    }
  }
  for (int first = 0; first < count;) {
    const int rows = count_overlapping(ranked + first, count - first);
    answer(ranked + first, rows);
    first += rows;
  }
  for (int n = 0; n < count; ++n) finish_row(*ranked[n], output);
  return sums_;
}

/// Rows whose windows overlap well.
void RowGroup::answer(RowState** rows, int count) {
  num_known_ = 0;
  const std::int64_t least =
      std::max<std::int64_t>(kLeastScreened, kLeastPerWinner * problem_.topk);
  const bool worth = options_.mode != DOSA_MODE_AUTO || hull(rows, count).length() >= least;
  if (screens(options_) && worth) {
    answer_screened(rows, count);
    return;
  }
  const bool bounded = options_.mode != DOSA_MODE_AUTO ||
                       hull(rows, count).length() >= kLeastBounded * problem_.topk;
  for (int n = 0; n < count && certifies(options_); ++n) {
    if (bounded) {
      plan_all_heads(*rows[n]);
    } else {
      rows[n]->stats.fallback = rows[n]->certifiable ? 0 : 1;
    }
  }
  scan_rows(rows, count);
}

/// One pilot row first, then the others with its winners as seeds.
void RowGroup::answer_screened(RowState** rows, int count) {
  prepare_sample(hull(rows, count));
  seeded_ = count >= kPilotRows;
  RowState& pilot = *rows[count / 2];
  score_sample(pilot);
  plan_row(pilot, nullptr);
  std::swap(rows[0], rows[count / 2]);
  int planned = 1;
  num_seeds_ = 0;
  if (seeded_ && pilot.path == RowPath::kScreen) {
    scan_rows(rows, 1);
    pilot.records.reduce();
    take_seeds(pilot);
    score_seeds(rows + 1, count - 1);
    for (int n = 1; n < count; ++n) {
      score_sample(*rows[n]);
      plan_row(*rows[n], &pilot);
    }
    scan_rows(rows + 1, count - 1);
    return;
  }
  for (; planned < count; ++planned) {
    score_sample(*rows[planned]);
    plan_row(*rows[planned], &pilot);
  }
  scan_rows(rows, count);
}

/// All keys of all rows that are not known yet, tile by tile.
void RowGroup::scan_rows(RowState** rows, int count) {
  const TileOrder order(hull(rows, count));
  const bool base = options_.mode == DOSA_MODE_BASE;
  Window stored[kBaseTiles];
  for (std::int64_t t = 0; t < order.size(); ++t) {
    const Window window = order[t];
    bool seen = false;
    for (int n = 0; n < count; ++n) seen = seen || meet(window, rows[n]->ranked);
    if (base) stored[t % kBaseTiles] = window;
    if (seen)
      plan::build_tile(keys_, window.begin, nullptr, static_cast<int>(window.length()), tile_);
    screen::Survivors unknown = range_mask(0, window.length());
    const std::int32_t* known_end = known_ids_ + num_known_;
    for (const std::int32_t* id =
             std::lower_bound<const std::int32_t*>(known_ids_, known_end, window.begin);
         id != known_end && *id < window.end; ++id) {
      const std::int64_t at = *id - window.begin;
      unknown[static_cast<std::size_t>(at / 64)] &= ~(1ULL << (at % 64));
    }
    for (int n = 0; n < count && seen; ++n) {
      RowState& state = *rows[n];
      if (!meet(window, state.ranked)) continue;
      if (base) {
        refine::score_keys(state.query, tile_, nullptr, tile_.count,
                           base_scores_ + (n * kBaseTiles + t % kBaseTiles) * plan::kTileKeys,
                           nullptr);
        continue;
      }
      screen::Survivors mask =
          range_mask(state.ranked.begin - window.begin, state.ranked.end - window.begin);
      for (std::size_t word = 0; word < mask.size(); ++word) mask[word] &= unknown[word];
      visit_tile(state, mask);
    }
    if (!base) continue;
    if (t % kBaseTiles == kBaseTiles - 1 || t + 1 == order.size()) {
      flush_base(rows, count, stored, static_cast<int>(t % kBaseTiles) + 1);
    }
  }
}

/// Mode `base`: selects from the stored scores of a chunk.
void RowGroup::flush_base(RowState** rows, int count, const Window* tiles, int num_tiles) {
  for (int n = 0; n < count; ++n) {
    RowState& state = *rows[n];
    for (int t = 0; t < num_tiles; ++t) {
      const float* scores = base_scores_ + (n * kBaseTiles + t) * plan::kTileKeys;
      const std::int64_t begin = std::max(tiles[t].begin, state.ranked.begin);
      const std::int64_t end = std::min(tiles[t].end, state.ranked.end);
      for (std::int64_t id = begin; id < end; ++id) {
        state.records.offer(scores[id - tiles[t].begin], static_cast<std::int32_t>(id));
      }
      state.records.reserve();
      if (begin < end) state.stats.fully_scored += end - begin;
    }
  }
}

namespace {

select::IndexMap index_map(const dosa_problem& problem, const dosa_options& options,
                           const RowState& state) {
  select::IndexMap map;
  map.form = static_cast<dosa_index_form>(options.index_form);
  map.start = static_cast<std::int32_t>(state.window.begin);
  if (map.form == DOSA_INDEX_OFFSET) map.offset = problem.index_offset[state.row];
  if (map.form == DOSA_INDEX_SLOT) {
    map.table = problem.page_table + state.row * problem.page_table_stride;
    map.page_size = problem.page_size;
    map.pages = problem.page_table_pages;
  }
  return map;
}

}  // namespace

void RowGroup::finish_row(RowState& state, const dosa_output& output) {
  state.records.reduce();
  dosa_row_stats& stats = state.stats;
  const bool is_short = state.window.length() <= problem_.topk;
  if (!is_short) stats.kth_score = state.records.threshold();
  stats.records = state.records.offered();
  stats.rounds = state.records.reductions();
  if (state.slack_count > 0) {
    stats.mean_slack = static_cast<float>(state.slack_sum / static_cast<double>(state.slack_count));
  }
  if (stats.screened > 0 && std::isfinite(stats.kth_score)) {
    stats.mean_deficit = static_cast<float>(
        stats.kth_score - state.threshold_sum / static_cast<double>(stats.screened));
  }
  select::emit_row(
      state.records.data(), state.records.count(), problem_.topk,
      static_cast<dosa_order>(options_.order), index_map(problem_, options_, state), scratch_,
      output.indices + state.row * output.indices_stride,
      output.scores != nullptr ? output.scores + state.row * output.scores_stride : nullptr);
  sums_.add(stats, is_short, state.slack_sum, state.slack_count);
  if (output.rows != nullptr) output.rows[state.row] = stats;
}

/// At most K keys: all of them win. They are scored only where the scores are asked for.
void RowGroup::finish_short_row(RowState& state, const dosa_output& output) {
  const bool need_scores = output.scores != nullptr || options_.order == DOSA_ORDER_SCORE;
  if (need_scores) pack_row(state);
  for (std::int64_t begin = state.ranked.begin; begin < state.ranked.end;
       begin += plan::kTileKeys) {
    const auto length =
        static_cast<int>(std::min<std::int64_t>(plan::kTileKeys, state.ranked.end - begin));
    if (need_scores) {
      plan::build_tile(keys_, begin, nullptr, length, tile_);
      refine::score_keys(state.query, tile_, nullptr, length, scores_, nullptr);
      state.stats.fully_scored += length;
    }
    for (int n = 0; n < length; ++n) {
      state.records.keep(make_record(need_scores ? score_code(scores_[n]) : 0,
                                     static_cast<std::int32_t>(begin + n)));
    }
    state.records.reserve();
  }
  finish_row(state, output);
}

}  // namespace dosa::engine
