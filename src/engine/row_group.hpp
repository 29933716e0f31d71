// SPDX-License-Identifier: Apache-2.0
// One thread's work: a group of neighbouring rows, scanned together so that a tile of keys is
// prepared once for all of them. plan -> screen -> refine -> select, tile by tile.
#ifndef DOSA_ENGINE_ROW_GROUP_HPP
#define DOSA_ENGINE_ROW_GROUP_HPP

#include <cstdint>

#include "dosa/dosa.h"
#include "engine/audit.hpp"
#include "engine/cost_model.hpp"
#include "engine/row_state.hpp"
#include "engine/sums.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace dosa::engine {

inline constexpr int kGroupRows = 128;  // most rows of a group: they share the work on a tile
inline constexpr int kPilotRows = 4;  // from this many rows on, one goes first and seeds the others
inline constexpr int kSampleKeys = 1024;  // keys scored first, spread over the context
inline constexpr int kBaseTiles = 16;  // tiles of scores that mode `base` stores before it selects

class RowGroup {
 public:
  /// Same call with a counting and a real arena. group_rows <= kGroupRows.
  void place(Arena& arena, const dosa_problem& problem, const dosa_options& options,
             int group_rows);

  /// Answers rows [begin, end), end - begin <= group_rows.
  Sums run(std::int64_t begin, std::int64_t end, const dosa_output& output);

  // inspect.cpp
  /// Plans one row as a screening call of that row alone would, for inspection.
  const RowState& inspect(std::int64_t row);
  /// U of the visible keys of the inspected row (N12), +Inf for keys that may not be pruned.
  void inspect_bounds(float* bounds);
  /// Scores of the visible keys of one row; the other cells are left alone.
  void score_row(std::int64_t row, float* scores);

  void set_audit(Audit* audit) { audit_ = audit; }

 private:
  // row_group.cpp: the course of a group
  void start_row(std::int64_t row, RowState& state);
  void pack_row(RowState& state);
  void answer(RowState** rows, int count);
  void answer_screened(RowState** rows, int count);
  void scan_rows(RowState** rows, int count);
  void flush_base(RowState** rows, int count, const Window* tiles, int num_tiles);
  void finish_row(RowState& state, const dosa_output& output);
  void finish_short_row(RowState& state, const dosa_output& output);

  // scan.cpp: one row, one tile
  void visit_tile(RowState& state, const screen::Survivors& mask);
  void score_all(RowState& state, const screen::Survivors& mask);
  void pass_all_heads(RowState& state, const screen::Survivors& mask, LowerBound guarded);
  void screen_and_refine(RowState& state, const screen::Survivors& mask, float threshold);
  void audit_screen(const RowState& state, const screen::Survivors& rejected);
  void audit_refine(const RowState& state, int count, LowerBound guarded);
  int refine_picked(RowState& state, int count, LowerBound guarded);
  void count_screened(RowState& state, int screened, int survivors, float threshold);
  void add_slack(RowState& state, int kept) const;
  void review_path(RowState& state);

  // prepare.cpp: sample, seeds, certificate
  void prepare_sample(Window window);
  void score_sample(RowState& state);
  void score_seeds(RowState** rows, int count);
  void take_seeds(const RowState& pilot);
  void plan_row(RowState& state, const RowState* pilot);
  [[nodiscard]] plan::ActivationStatistics sample_statistics(const RowState& state) const;
  void certify(RowState& state, int retained, const plan::ActivationStatistics& statistics);
  void plan_all_heads(RowState& state);
  void choose_retained(RowState& state, const plan::ActivationStatistics& statistics);
  Estimate predicted_cost(const RowState& state);

  dosa_problem problem_{};
  dosa_options options_{};
  plan::KeySource keys_{};
  CostModel cost_;
  Audit* audit_ = nullptr;
  bool inspecting_ = false;  // a certificate is wanted even where `auto` would not use one
  Sums sums_;                // of the group being answered

  RowState* states_ = nullptr;  // (group_rows)
  plan::KeyTile tile_;          // being scanned
  plan::KeyTile sample_[kSampleKeys / plan::kTileKeys];
  std::int32_t* sample_ids_ = nullptr;  // (kSampleKeys) ascending
  int num_sample_ = 0;
  float* sample_scores_ = nullptr;  // (kSampleKeys) of the row being planned; NaN: not visible
  refine::ActiveHeads* sample_active_ = nullptr;  // (kSampleKeys)
  std::int32_t* seed_ids_ = nullptr;  // (K) winners of the pilot that are not in the sample
  int num_seeds_ = 0;
  bool seeded_ = false;                  // all rows but one of the group start with seeds
  std::int32_t* known_ids_ = nullptr;    // (K + kSampleKeys) sample and seeds, ascending: scored
  int num_known_ = 0;                    // before the scan for every row of it
  plan::ScreenOperand scratch_operand_;  // for building all_heads
  Record* scratch_ = nullptr;            // (K)
  float* scores_ = nullptr;              // (kTileKeys)
  float* bounds_ = nullptr;              // (kTileKeys)
  float* refined_bounds_ = nullptr;      // (kTileKeys) audits only
  float* base_scores_ = nullptr;         // (group_rows, kBaseTiles, kTileKeys), mode `base`
  std::uint16_t* pick_ = nullptr;        // (kTileKeys)
  std::uint16_t* kept_ = nullptr;        // (kTileKeys) what refining leaves of pick_
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_ROW_GROUP_HPP
