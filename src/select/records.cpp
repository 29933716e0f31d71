// SPDX-License-Identifier: Apache-2.0
#include "select/records.hpp"

#include <algorithm>
#include <functional>

namespace dosa::select {

void RecordBuffer::reduce() {
  if (count_ < topk_) return;
  if (count_ > topk_) keep_greatest(records_, count_, topk_);
  count_ = topk_;
  code_ = record_code(*std::min_element(records_, records_ + topk_));
  ++reductions_;
}

namespace {

/// Moves the records above `pivot` to the front and returns how many there are. Branch-free, since
/// the outcome of each comparison is a coin toss.
int partition_above(Record* records, int count, Record pivot) {
  int above = 0;
  for (int n = 0; n < count; ++n) {
    const Record record = records[n];
    records[n] = records[above];
    records[above] = record;
    above += record > pivot ? 1 : 0;
  }
  return above;
}

}  // namespace

/// Floyd and Rivest's idea: two pivots from a sample bracket the boundary, so that two cheap passes
/// leave a small middle for the exact selection. A bracket that misses costs time only.
void keep_greatest(Record* records, int count, int keep) {
  constexpr int kSample = 48;
  constexpr int kMargin = 5;  // sample ranks on either side of the boundary
  constexpr int kWorthwhile = 512;
  if (keep <= 0 || keep >= count) return;
  int first = 0;
  int last = count;
  if (count >= kWorthwhile) {
    Record sample[kSample];
    for (int n = 0; n < kSample; ++n) {
      sample[n] = records[static_cast<std::int64_t>(n) * count / kSample];
    }
    std::sort(sample, sample + kSample, std::greater<>());
    const int rank = static_cast<int>(static_cast<std::int64_t>(keep) * kSample / count);
    if (rank + kMargin < kSample) {
      const int above = partition_above(records, count, sample[rank + kMargin]);
      if (above >= keep) last = above;
    }
    if (rank >= kMargin) {
      const int above = partition_above(records, last, sample[rank - kMargin]);
      if (above < keep) first = above;
    }
  }
  std::nth_element(records + first, records + (keep - 1), records + last, std::greater<>());
}

void keep_greatest_ref(Record* records, int count, int keep) {
  if (keep < count) std::sort(records, records + count, std::greater<>());
}

}  // namespace dosa::select
