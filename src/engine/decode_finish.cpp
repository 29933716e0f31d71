// SPDX-License-Identifier: Apache-2.0
// The end of a request: answers, and what its next step will look at first.
#include <algorithm>
#include <cstddef>

#include "engine/decode_worker.hpp"
#include "refine/score.hpp"
#include "select/emit.hpp"

namespace dosa::engine {
namespace {

select::IndexMap index_map(const dosa_paged_problem& problem, const dosa_options& options,
                           std::int64_t row) {
  select::IndexMap map;
  map.form = static_cast<dosa_index_form>(options.index_form);
  if (map.form == DOSA_INDEX_OFFSET) map.offset = problem.index_offset[row];
  if (map.form != DOSA_INDEX_SLOT) return map;
  const std::int64_t request = row / problem.next_n;
  const bool own = problem.slot_table == nullptr;
  map.table = own ? problem.block_table + request * problem.block_table_stride
                  : problem.slot_table + request * problem.slot_table_stride;
  map.page_size = own ? problem.cache->page_size : problem.slot_page_size;
  map.pages = own ? problem.block_table_blocks : problem.slot_table_pages;
  return map;
}

}  // namespace

void DecodeWorker::finish(const dosa_output& output) {
  const bool scores_matter = output.scores != nullptr || options_.order == DOSA_ORDER_SCORE;
  const WitnessState state = witness_of(problem_, request_);
  for (int t = 0; t < problem_.next_n; ++t) {
    DecodeRow& row = rows_[t];
    select::RecordBuffer& records = records_[t];
    if (row.is_short) keep_all(row, records, scores_matter);
    const int held = records.count();
    records.reduce();
    if (t == state_row_ && state.exists()) remember(records, held);
    finish_row(row, records, output);
  }
  if (state_row_ < 0 && state.exists()) state.write(nullptr, 0);
}

/// At most K tokens: all of them win. They are scored only where the scores are asked for.
void DecodeWorker::keep_all(DecodeRow& row, select::RecordBuffer& records, bool scored) {
  scanning_ = request_;
  if (scored && !row.ranked.empty()) pack(row);
  for (std::int64_t begin = row.ranked.begin; begin < row.ranked.end; begin += plan::kTileKeys) {
    const Window tokens{begin, std::min(begin + plan::kTileKeys, row.ranked.end)};
    const auto count = static_cast<int>(tokens.length());
    if (scored) {
      build(tokens);
      refine::score_keys(row.query, tile_, nullptr, count, scores_, nullptr);
      row.stats.fully_scored += count;
    }
    for (int n = 0; n < count; ++n) {
      records.keep(
          make_record(scored ? score_code(scores_[n]) : 0, static_cast<std::int32_t>(begin + n)));
    }
    records.reserve();
  }
}

void DecodeWorker::finish_row(DecodeRow& row, select::RecordBuffer& records,
                              const dosa_output& output) {
  dosa_row_stats& stats = row.stats;
  if (!row.is_short) stats.kth_score = records.threshold();
  stats.records = records.offered();
  stats.rounds = records.reductions();
  select::emit_row(
      records.data(), records.count(), problem_.topk, static_cast<dosa_order>(options_.order),
      index_map(problem_, options_, row.row), scratch_,
      output.indices + row.row * output.indices_stride,
      output.scores != nullptr ? output.scores + row.row * output.scores_stride : nullptr);
  sums_.add(stats, row.is_short, 0.0, 0);
  if (output.rows != nullptr) output.rows[row.row] = stats;
}

/// The winners and the best of the others whose scores are known, to the state. `held`: records
/// before the last reduction, of which the losers still lie behind the winners.
void DecodeWorker::remember(select::RecordBuffer& records, int held) {
  const int winners = records.count();
  int count = 0;
  if (winners == problem_.topk) {
    const Record worst = *std::min_element(records.data(), records.data() + winners);
    count = add_runners_up(records, held, worst);
  }
  std::copy(records.data(), records.data() + winners, pool_ + count);
  count += winners;
  select::sort_by_id(pool_, count, scratch_);
  // The ids take the place of the witnesses that led here.
  for (int n = 0; n < count; ++n) known_ids_[n] = record_id(pool_[n]);
  witness_of(problem_, request_).write(known_ids_, count);
}

/// Fills the front of pool_; returns how many.
int DecodeWorker::add_runners_up(const select::RecordBuffer& records, int held, Record worst) {
  const std::int32_t* known_end = known_ids_ + num_known_;
  const int room = witness_capacity(problem_.topk) - records.count();
  int count = 0;
  for (int n = 0; n < num_known_; ++n) {
    if (known_records_[n] != 0 && known_records_[n] < worst) pool_[count++] = known_records_[n];
  }
  for (int n = records.count(); n < held; ++n) {
    const Record record = records.data()[n];
    if (std::binary_search<const std::int32_t*>(known_ids_, known_end, record_id(record))) continue;
    pool_[count++] = record;
  }
  if (count <= room) return count;
  select::keep_greatest(pool_, count, room);
  return room;
}

}  // namespace dosa::engine
