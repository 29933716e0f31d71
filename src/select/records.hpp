// SPDX-License-Identifier: Apache-2.0
// Step 4: the exact Top-K of scored keys, and the threshold that it proves.
#ifndef DOSA_SELECT_RECORDS_HPP
#define DOSA_SELECT_RECORDS_HPP

#include <cstddef>
#include <cstdint>
#include <limits>

#include "numeric/arena.hpp"
#include "numeric/order.hpp"

namespace dosa::select {

/// Scored keys of one row. Holds the K best of everything that was offered, plus what was offered
/// since the last reduction; nothing else is ever dropped (E16).
/// The caller offers every key at most once: a key offered twice would be two witnesses.
class RecordBuffer {
 public:
  /// New records after which the buffer is reduced and the threshold raised.
  static int slack(int topk) { return topk < 1024 ? 512 : topk / 2; }

  /// Records of a buffer with this K and `burst`.
  static int capacity(int topk, int burst) { return topk + slack(topk) + burst; }

  /// `burst`: most records offered between two calls of reserve().
  void place(Arena& arena, int topk, int burst) {
    topk_ = topk;
    limit_ = topk + slack(topk);
    records_ = arena.take<Record>(static_cast<std::size_t>(capacity(topk, burst)));
  }

  void clear() { restart(0); }
  /// Empties the buffer; records below the threshold of this code, which others have proven, are
  /// left out from now on.
  void restart(std::uint32_t code) {
    count_ = 0;
    code_ = code;
    reductions_ = 0;
    offered_ = 0;
  }

  /// Keeps the key unless its score is below the K-th best so far. Equality stays: a lower id wins.
  void offer(float score, std::int32_t id) { offer(make_record(score_code(score), id)); }
  void offer(Record record) {
    if (record_code(record) >= code_) keep(record);
  }
  /// Keeps the key whatever its score (mode `screen` writes all survivors' scores).
  void keep(Record record) {
    records_[count_++] = record;
    ++offered_;
  }

  /// Makes room for a burst; returns whether the buffer was reduced.
  bool reserve() {
    if (count_ <= limit_) return false;
    reduce();
    return true;
  }

  /// Keeps the K best and raises the threshold to the worst of them. The others of those held stay
  /// in memory behind the K best, until more is offered.
  void reduce();

  /// Code of the K-th best score of any K offered keys; 0 (below every score) while there are
  /// fewer.
  [[nodiscard]] std::uint32_t threshold_code() const { return code_; }
  /// The same as a score; -Inf while it rejects nothing.
  [[nodiscard]] float threshold() const {
    return code_ == 0 ? -std::numeric_limits<float>::infinity() : code_score(code_);
  }

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] Record* data() { return records_; }
  [[nodiscard]] const Record* data() const { return records_; }
  [[nodiscard]] std::int64_t offered() const { return offered_; }
  [[nodiscard]] std::int64_t reductions() const { return reductions_; }

 private:
  Record* records_ = nullptr;
  int topk_ = 0, limit_ = 0;
  int count_ = 0;
  std::uint32_t code_ = 0;
  std::int64_t offered_ = 0;
  std::int64_t reductions_ = 0;
};

/// Moves the `keep` greatest of `count` distinct records to the front, in any order, keep <= count.
void keep_greatest(Record* records, int count, int keep);
void keep_greatest_ref(Record* records, int count, int keep);

}  // namespace dosa::select

#endif  // DOSA_SELECT_RECORDS_HPP
