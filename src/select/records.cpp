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

void keep_greatest(Record* records, int count, int keep) {
  if (keep <= 0 || keep >= count) return;
  std::nth_element(records, records + (keep - 1), records + count, std::greater<>());
}

void keep_greatest_ref(Record* records, int count, int keep) {
  std::sort(records, records + count, std::greater<>());
  (void)keep;
}

}  // namespace dosa::select
