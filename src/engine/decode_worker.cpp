// SPDX-License-Identifier: Apache-2.0
// The course of a request: lengths and queries, witnesses, keys; answers are in decode_finish.cpp.
#include "engine/decode_worker.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>

#include "engine/decode.hpp"
#include "plan/envelope.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace dosa::engine {
namespace {

// Tokens per witness from which on scoring the witnesses first does not cost more than it saves.
constexpr double kLeastPerWitness = 2.5;
constexpr int kLeastInPlace = 64;  // tokens of a page
constexpr float kRejectsNothing = -std::numeric_limits<float>::infinity();

}  // namespace

void DecodeWorker::place(Arena& arena, const dosa_paged_problem& problem,
                         const dosa_options& options) {
  problem_ = problem;
  options_ = options;
  const int heads = problem.num_heads;
  const int dims = problem.cache->head_dim;
  const auto queries = static_cast<std::size_t>(problem.next_n);
  const auto capacity = static_cast<std::size_t>(witness_capacity(problem.topk));
  rows_ = arena.take<DecodeRow>(queries);
  records_ = arena.take<select::RecordBuffer>(queries);
  DecodeRow counted_row;  // places pieces while there is no memory yet
  select::RecordBuffer counted_records;
  for (std::size_t t = 0; t < queries; ++t) {
    DecodeRow& row = rows_ == nullptr ? counted_row : *new (rows_ + t) DecodeRow();
    select::RecordBuffer& records =
        records_ == nullptr ? counted_records : *new (records_ + t) select::RecordBuffer();
    row.query.place(arena, heads, dims);
    row.all_heads.place(arena, heads);
    records.place(arena, problem.topk, plan::kTileKeys);
  }
  scored_ = arena.take<std::int64_t>(queries);
  query_rows_.place(arena, heads, dims);
  scratch_operand_.place(arena, heads, dims);
  tile_.place(arena, plan::kTileKeys, dims, plan::simd_lanes(), 0, false);
  codes_ = arena.take<std::uint8_t>(static_cast<std::size_t>(plan::kTileKeys) *
                                    static_cast<std::size_t>(dims));
  scales_ = arena.take<float>(plan::kTileKeys);
  scores_ = arena.take<float>(plan::kTileKeys);
  listed_ = arena.take<std::int32_t>(plan::kTileKeys);
  pick_ = arena.take<std::uint16_t>(plan::kTileKeys);
  kept_ = arena.take<std::uint16_t>(plan::kTileKeys);
  known_ids_ = arena.take<std::int32_t>(capacity);
  known_records_ = arena.take<Record>(capacity);
  // Witnesses that lost, what the last reduction left behind, and the winners.
  pool_ = arena.take<Record>(capacity + static_cast<std::size_t>(select::RecordBuffer::capacity(
                                            problem.topk, plan::kTileKeys)));
  scratch_ = arena.take<Record>(capacity);
}

void DecodeWorker::start(std::int64_t b) {
  request_ = b;
  num_known_ = 0;
  state_row_ = -1;
  scanned_ = {std::numeric_limits<std::int64_t>::max(), 0};
  for (int t = 0; t < problem_.next_n; ++t) {
    DecodeRow& row = rows_[t];
    start_row(row, records_[t], t);
    if (!row.window.empty()) state_row_ = t;
    if (row.is_short) continue;
    scanned_.begin = std::min(scanned_.begin, row.ranked.begin);
    scanned_.end = std::max(scanned_.end, row.ranked.end);
  }
  if (scanned_.empty()) scanned_ = {};
  const WitnessState state = witness_of(problem_, b);
  if (state.exists() && options_.mode != DOSA_MODE_BASE && !scanned_.empty()) {
    num_known_ = state.read(scanned_.end, known_ids_);
    // So many of the tokens are no shortcut.
    if (kLeastPerWitness * num_known_ > static_cast<double>(scanned_.length())) num_known_ = 0;
  }
}

void DecodeWorker::start_row(DecodeRow& row, select::RecordBuffer& records, int t) {
  row.row = request_ * problem_.next_n + t;
  row.window = {0, context_length(problem_, request_, t)};
  row.ranked.begin = std::min<std::int64_t>(options_.forced_first, row.window.end);
  row.ranked.end = std::max<std::int64_t>(row.ranked.begin, row.window.end - options_.forced_last);
  row.is_short = row.window.length() <= problem_.topk;
  row.bounded = false;
  row.floor = 0;
  row.stats = {};
  row.stats.visible = row.window.length();
  row.stats.first_threshold = row.stats.last_threshold = row.stats.kth_score = kRejectsNothing;
  row.has_threshold = false;
  records.clear();
  force(row, records);
  plan_row(row);
}

/// Forced tokens compete as +Inf with their ids; more than K of them are settled by the tie rule.
void DecodeWorker::force(const DecodeRow& row, select::RecordBuffer& records) const {
  const std::uint32_t infinite = score_code(std::numeric_limits<float>::infinity());
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end, begin + problem_.topk);
    for (std::int64_t id = begin; id < last; ++id) {
      records.keep(make_record(infinite, static_cast<std::int32_t>(id)));
      records.reserve();
    }
  };
  add(row.window.begin, row.ranked.begin);
  add(row.ranked.end, row.window.end);
}

void DecodeWorker::pack(DecodeRow& row) {
  plan::pack_query(problem_.q + row.row * problem_.q_stride,
                   problem_.weights + row.row * problem_.weights_stride, row.query, query_rows_);
}

void DecodeWorker::plan_row(DecodeRow& row) {
  if (row.is_short) return;
  pack(row);
  if (options_.mode == DOSA_MODE_BASE) return;
  if (row.query.finite) {
    const plan::Envelope envelope =
        plan::build_all_heads(query_rows_, row.query.weights, problem_.num_heads,
                              problem_.cache->head_dim, scratch_operand_, row.all_heads);
    row.bounded = envelope.strength <= plan::kRowStrengthLimit;
  }
  row.stats.fallback = row.bounded ? 0 : 1;
}

/// The others start from the thresholds of the lead, whose records go on.
void DecodeWorker::begin_round(const DecodeWorker& lead) {
  scanning_ = lead.request_;
  for (int t = 0; t < problem_.next_n; ++t) {
    scored_[t] = 0;
    if (this != &lead) records_[t].restart(lead.rows_[t].floor);
  }
}

PagedKeys DecodeWorker::keys() const {
  return {*problem_.cache, problem_.block_table + scanning_ * problem_.block_table_stride};
}

/// The keys of `tokens` to the tile, straight from the page where it is one.
void DecodeWorker::build(Window tokens) {
  const int dims = problem_.cache->head_dim;
  const PagedKeys from = keys();
  if (tokens.end <= from.page_end(tokens.begin)) {
    plan::build_tile(from.in_place(tokens.begin), 0, nullptr, static_cast<int>(tokens.length()),
                     tile_);
    tile_.first = tokens.begin;
    return;
  }
  from.copy(tokens.begin, tokens.length(), codes_, dims, scales_);
  plan::build_tile({codes_, dims, scales_}, 0, nullptr, static_cast<int>(tokens.length()), tile_);
  tile_.first = tokens.begin;
}

/// Any set of distinct visible tokens is valid, since each is scored here, once, for each row.
void DecodeWorker::score_witnesses(DecodeWorker& lead, Share share) {
  begin_round(lead);
  for (int begin = share.member * plan::kTileKeys; begin < lead.num_known_;
       begin += share.members * plan::kTileKeys) {
    const int count = std::min(plan::kTileKeys, lead.num_known_ - begin);
    const std::int32_t* ids = lead.known_ids_ + begin;
    keys().copy_listed(ids, count, codes_, scales_);
    plan::build_tile({codes_, problem_.cache->head_dim, scales_}, 0, nullptr, count, tile_);
    for (int t = 0; t < problem_.next_n; ++t) {
      const DecodeRow& row = lead.rows_[t];
      if (row.is_short) continue;
      refine::score_keys(row.query, tile_, nullptr, count, scores_, nullptr);
      for (int n = 0; n < count; ++n) {
        const bool ranked = ids[n] >= row.ranked.begin && ids[n] < row.ranked.end;
        const Record record = ranked ? make_record(score_code(scores_[n]), ids[n]) : 0;
        if (t == lead.state_row_) lead.known_records_[begin + n] = record;
        if (!ranked) continue;
        records_[t].offer(record);
        ++scored_[t];
      }
      records_[t].reserve();
    }
  }
}

void DecodeWorker::take_records(const DecodeWorker* const* workers, Share share) {
  for (int t = share.member; t < problem_.next_n; t += share.members) {
    select::RecordBuffer& all = records_[t];
    DecodeRow& row = rows_[t];
    for (int w = 0; w < share.members; ++w) {
      row.stats.fully_scored += workers[w]->scored_[t];
      if (workers[w] == this) continue;
      const select::RecordBuffer& part = workers[w]->records_[t];
      for (int n = 0; n < part.count(); ++n) {
        all.offer(part.data()[n]);
        all.reserve();
      }
    }
    if (row.is_short) continue;
    if (share.members > 1 || !row.has_threshold) all.reduce();
    row.floor = all.threshold_code();
    row.stats.last_threshold = all.threshold();
    if (!row.has_threshold) row.stats.first_threshold = all.threshold();
    row.has_threshold = true;
  }
}

void DecodeWorker::scan(const DecodeWorker& lead, std::int64_t first_tile, std::int64_t last_tile,
                        Share share) {
  begin_round(lead);
  const TileOrder order(lead.scanned_);
  // Large pages are read one by one, in place; copying small ones together costs less than tiles of
  // few keys.
  const bool page_by_page = problem_.cache->page_size >= kLeastInPlace;
  const PagedKeys from = keys();
  for (std::int64_t i = first_tile + share.member; i < last_tile; i += share.members) {
    const Window tokens = order[i];
    for (Window part = tokens; part.begin < tokens.end; part.begin = part.end) {
      part.end = page_by_page ? std::min(tokens.end, from.page_end(part.begin)) : tokens.end;
      if (build_unknown(lead, part)) visit_rows(lead);
    }
  }
}

/// The tile meets each query.
void DecodeWorker::visit_rows(const DecodeWorker& lead) {
  for (int t = 0; t < problem_.next_n; ++t) {
    const DecodeRow& row = lead.rows_[t];
    const int count = row.is_short ? 0 : pick_visible(row);
    if (count == 0) continue;
    visit(row, count, records_[t]);
    scored_[t] += count;
    records_[t].reserve();
  }
}

/// The tile of the tokens that are not scored yet; false where there is none.
bool DecodeWorker::build_unknown(const DecodeWorker& lead, Window tokens) {
  const std::int32_t* last = lead.known_ids_ + lead.num_known_;
  const std::int32_t* known =
      std::lower_bound<const std::int32_t*>(lead.known_ids_, last, tokens.begin);
  if (known == last || *known >= tokens.end) {
    build(tokens);
    return true;
  }
  const int dims = problem_.cache->head_dim;
  const PagedKeys from = keys();
  int count = 0;
  for (std::int64_t at = tokens.begin; at < tokens.end;) {
    const std::int64_t stop =
        known != last ? std::min<std::int64_t>(*known, tokens.end) : tokens.end;
    from.copy(at, stop - at, codes_ + static_cast<std::int64_t>(count) * dims, dims,
              scales_ + count);
    for (; at < stop; ++at) listed_[count++] = static_cast<std::int32_t>(at);
    ++at;  // a witness, or the end
    if (known != last) ++known;
  }
  if (count == 0) return false;
  plan::build_tile({codes_, dims, scales_}, 0, nullptr, count, tile_);
  tile_.ids = listed_;
  return true;
}

/// Positions in the tile, to pick_, of the tokens that the row ranks. The tile is ascending.
int DecodeWorker::pick_visible(const DecodeRow& row) {
  int count = 0;
  for (int n = 0; n < tile_.count; ++n) {
    pick_[count] = static_cast<std::uint16_t>(n);
    count += tile_.id(n) >= row.ranked.begin && tile_.id(n) < row.ranked.end ? 1 : 0;
  }
  return count;
}

/// The picked keys of the tile: all scored, or those whose bound over all heads reaches the
/// threshold.
void DecodeWorker::visit(const DecodeRow& row, int count, select::RecordBuffer& records) {
  const float threshold =
      options_.threshold == DOSA_THRESHOLD_FIXED ? row.stats.first_threshold : records.threshold();
  if (!row.bounded || threshold == kRejectsNothing) {
    const bool all = count == tile_.count;
    refine::score_keys(row.query, tile_, all ? nullptr : pick_, count, scores_, nullptr);
    for (int n = 0; n < count; ++n) records.offer(scores_[n], tile_.id(pick_[n]));
    return;
  }
  const int kept =
      refine::refine_keys(row.query, tile_, row.all_heads, screen::guarded_threshold(threshold),
                          pick_, count, kept_, scores_, nullptr);
  for (int n = 0; n < kept; ++n) records.offer(scores_[n], tile_.id(kept_[n]));
}

}  // namespace dosa::engine
