// SPDX-License-Identifier: Apache-2.0
// The K best of lists of scored keys whose parts may overlap (E17).
#ifndef DOSA_SELECT_MERGE_HPP
#define DOSA_SELECT_MERGE_HPP

#include <cstdint>

#include "dosa/dosa_merge.h"
#include "numeric/arena.hpp"
#include "numeric/order.hpp"

namespace dosa::select {

/// Merges the lists of one row at a time in memory that is placed once.
class Merger {
 public:
  /// Same call with a counting and a real arena.
  void place(Arena& arena, int topk);

  /// The K best keys of the lists of a row, each once, with its best score.
  /// Shapes: indices (K), -1 behind the last; scores (K), NaN behind the last, or null.
  void merge_row(const dosa_candidates& candidates, std::int64_t row, std::int32_t* indices,
                 float* scores);

 private:
  void add_lists(const dosa_candidates& candidates, std::int64_t row);
  void add(const float* scores, const std::int32_t* ids, std::int64_t count);
  void reduce();
  void remove_repeats();

  int topk_ = 0;
  int limit_ = 0;              // records after which they are reduced
  int count_ = 0;              // of records_
  bool distinct_ = false;      // whether reductions remove repeats
  std::uint32_t code_ = 0;     // of the K-th best so far; 0 while there are fewer
  Record* records_ = nullptr;  // (limit_ + burst)
  Record* scratch_ = nullptr;  // the same
};

}  // namespace dosa::select

#endif  // DOSA_SELECT_MERGE_HPP
