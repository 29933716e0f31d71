// SPDX-License-Identifier: Apache-2.0
// One thread's part of a decode step: it answers requests alone, or a share of the keys of one.
#ifndef DOSA_ENGINE_DECODE_WORKER_HPP
#define DOSA_ENGINE_DECODE_WORKER_HPP

#include <cstdint>

#include "dosa/dosa_decode.h"
#include "engine/decode_pages.hpp"
#include "engine/decode_witness.hpp"
#include "engine/schedule.hpp"
#include "engine/sums.hpp"
#include "numeric/arena.hpp"
#include "plan/operands.hpp"
#include "plan/screen_operand.hpp"
#include "select/records.hpp"

namespace dosa::engine {

/// What all threads read while they scan the keys of one query.
struct DecodeRow {
  std::int64_t row = 0;
  Window window;  // visible tokens
  Window ranked;  // of these, those that are not forced
  plan::QueryPack query;
  plan::AllHeadsOperand all_heads;
  bool is_short = false;       // at most K tokens: all of them win
  bool bounded = false;        // the bound over all heads is valid
  std::uint32_t floor = 0;     // threshold that all workers start the round from
  bool has_threshold = false;  // the witnesses have been scored
  dosa_row_stats stats{};
};

/// Which share of the work falls to a thread: items member, member + members, ...
struct Share {
  int member = 0, members = 1;
};

/// The worker that starts a request leads it: its rows are those that all scan for, and in its
/// records all results come together. Steps of a request, in order, with a barrier between them
/// where several workers share it:
///   lead.start, score_witnesses, lead.take_records, (scan, lead.take_records)..., lead.finish
class DecodeWorker {
 public:
  /// Same call with a counting and a real arena.
  void place(Arena& arena, const dosa_paged_problem& problem, const dosa_options& options);

  /// Lengths, packed queries, forced tokens and known witnesses of request b.
  void start(std::int64_t b);
  void score_witnesses(DecodeWorker& lead, Share share);
  /// Tiles of the request that have to be scanned, in the order of their index.
  [[nodiscard]] std::int64_t num_tiles() const { return TileOrder(scanned_).size(); }
  void scan(const DecodeWorker& lead, std::int64_t first_tile, std::int64_t last_tile, Share share);
  /// Takes over what all workers found in this round and raises the thresholds. A share of the
  /// rows. Shapes: workers (share.members), this one among them
  void take_records(const DecodeWorker* const* workers, Share share);
  /// Answers and state of the request; adds to sums().
  void finish(const dosa_output& output);

  [[nodiscard]] const Sums& sums() const { return sums_; }

 private:
  void start_row(DecodeRow& row, select::RecordBuffer& records, int t);
  void pack(DecodeRow& row);
  void plan_row(DecodeRow& row);
  void force(const DecodeRow& row, select::RecordBuffer& records) const;
  void begin_round(const DecodeWorker& lead);
  [[nodiscard]] PagedKeys keys() const;
  void build(Window tokens);
  bool build_unknown(const DecodeWorker& lead, Window tokens);
  void visit_rows(const DecodeWorker& lead);
  int pick_visible(const DecodeRow& row);
  void visit(const DecodeRow& row, int count, select::RecordBuffer& records);
  void keep_all(DecodeRow& row, select::RecordBuffer& records, bool scored);
  void finish_row(DecodeRow& row, select::RecordBuffer& records, const dosa_output& output);
  void remember(select::RecordBuffer& records, int held);
  int add_runners_up(const select::RecordBuffer& records, int held, Record worst);

  dosa_paged_problem problem_{};
  dosa_options options_{};
  Sums sums_;

  // Of the request that this worker leads
  std::int64_t request_ = 0;
  DecodeRow* rows_ = nullptr;  // (next_n)
  Window scanned_;             // smallest window with all ranked tokens of rows that are not short
  int state_row_ = -1;         // the last query with a token to see: its winners are remembered
  std::int32_t* known_ids_ = nullptr;  // (capacity) witnesses that are scored first, ascending
  int num_known_ = 0;
  Record* known_records_ = nullptr;  // (capacity) their scores for state_row_; 0: not ranked there
  plan::QueryRows query_rows_;
  plan::ScreenOperand scratch_operand_;

  // Of this thread
  std::int64_t scanning_ = 0;                // the request whose keys it reads
  select::RecordBuffer* records_ = nullptr;  // (next_n)
  std::int64_t* scored_ = nullptr;           // (next_n) keys scored with all heads in this round
  plan::KeyTile tile_;
  std::uint8_t* codes_ = nullptr;   // (kTileKeys, D) copied from their pages
  float* scales_ = nullptr;         // (kTileKeys)
  float* scores_ = nullptr;         // (kTileKeys)
  std::int32_t* listed_ = nullptr;  // (kTileKeys) tokens of a tile without those that are known
  std::uint16_t* pick_ = nullptr;   // (kTileKeys)
  std::uint16_t* kept_ = nullptr;   // (kTileKeys)
  Record* pool_ = nullptr;          // runners-up, then all that is remembered
  Record* scratch_ = nullptr;       // (capacity)
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_WORKER_HPP
