// SPDX-License-Identifier: Apache-2.0
#include "select/merge.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "select/emit.hpp"
#include "select/records.hpp"

namespace dosa::select {
namespace {

constexpr int kBurst = 256;  // entries between two looks at whether the records are full

bool same_id(Record a, Record b) { return record_id(a) == record_id(b); }

}  // namespace

void Merger::place(Arena& arena, int topk) {
  topk_ = topk;
  limit_ = topk + RecordBuffer::slack(topk);
  const auto capacity = static_cast<std::size_t>(RecordBuffer::capacity(topk, kBurst));
  records_ = arena.take<Record>(capacity);
  scratch_ = arena.take<Record>(capacity);
}

/// Repeats are rare, so the first pass takes each entry for a key of its own. Its K best are those
/// of all entries; if they are K different keys, they are the answer: every key's best entry is
/// among the entries, and the others rank below. Else some of what was dropped belongs to the
/// answer, and the second pass removes repeats whenever it reduces.
void Merger::merge_row(const dosa_candidates& candidates, std::int64_t row, std::int32_t* indices,
                       float* scores) {
  distinct_ = false;
  add_lists(candidates, row);
  reduce();
  sort_by_id(records_, count_, scratch_);
  if (std::adjacent_find(records_, records_ + count_, same_id) != records_ + count_) {
    distinct_ = true;
    add_lists(candidates, row);
    reduce();
    sort_by_id(records_, count_, scratch_);
  }
  if (candidates.order == DOSA_ORDER_SCORE)
    std::sort(records_, records_ + count_, std::greater<>());
  write_row(records_, count_, topk_, IndexMap{}, indices, scores);
}

void Merger::add_lists(const dosa_candidates& candidates, std::int64_t row) {
  count_ = 0;
  code_ = 0;
  for (std::int64_t list = 0; list < candidates.num_lists; ++list) {
    std::int64_t begin = list * candidates.list_stride + row * candidates.row_stride;
    std::int64_t count = candidates.width;
    if (candidates.offsets != nullptr) {
      const std::int64_t* offset = candidates.offsets + list * (candidates.num_rows + 1) + row;
      begin = offset[0];
      count = offset[1] - offset[0];
    }
    if (count > 0) add(candidates.scores + begin, candidates.ids + begin, count);
  }
}

void Merger::add(const float* scores, const std::int32_t* ids, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kBurst) {
    const std::int64_t end = std::min(begin + kBurst, count);
    for (std::int64_t n = begin; n < end; ++n) {
      if (ids[n] < 0) {
        count = 0;  // the list ends here
        break;
      }
      const std::uint32_t code = score_code(scores[n]);
      if (code >= code_) records_[count_++] = make_record(code, ids[n]);
    }
    if (count_ > limit_) reduce();
  }
}

/// Keeps the K best. A record that is dropped has K keys above it, also where it comes again.
void Merger::reduce() {
  if (distinct_) remove_repeats();
  if (count_ < topk_) return;
  keep_greatest(records_, count_, topk_);
  count_ = topk_;
  code_ = record_code(*std::min_element(records_, records_ + topk_));
}

/// Of the records of a key the greatest stays.
void Merger::remove_repeats() {
  sort_by_id(records_, count_, scratch_);
  int kept = 0;
  for (int n = 0; n < count_; ++n) {
    if (kept > 0 && same_id(records_[kept - 1], records_[n])) {
      records_[kept - 1] = std::max(records_[kept - 1], records_[n]);
    } else {
      records_[kept++] = records_[n];
    }
  }
  count_ = kept;
}

}  // namespace dosa::select
