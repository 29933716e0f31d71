// SPDX-License-Identifier: Apache-2.0
#include "select/emit.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>

namespace dosa::select {

/// A radix sort, since ids are dense integers and comparisons mispredict.
void sort_by_id(Record* records, int count, Record* scratch) {
  constexpr int kDigitBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  for (int shift = 0; shift < 31; shift += kDigitBits) {
    const auto digit = [shift](Record record) {
      return (static_cast<std::uint32_t>(record_id(record)) >> shift) & (kDigits - 1);
    };
    std::array<int, kDigits> begin{};
    for (int n = 0; n < count; ++n) ++begin[digit(records[n])];
    if (count > 0 && begin[digit(records[0])] == count) continue;  // all digits equal
    int sum = 0;
    for (int& entry : begin) {
      const int here = entry;
      entry = sum;
      sum += here;
    }
    for (int n = 0; n < count; ++n) scratch[begin[digit(records[n])]++] = records[n];
    std::copy(scratch, scratch + count, records);
  }
}

std::int32_t IndexMap::operator()(std::int32_t id) const {
  const std::int64_t position = std::int64_t{id} - start;
  std::int64_t index = id;
  if (form == DOSA_INDEX_RELATIVE) index = position;
  if (form == DOSA_INDEX_OFFSET) index = position + offset;
  if (form == DOSA_INDEX_SLOT) {
    if (position / page_size >= pages) return -1;
    const std::int64_t page = table[position / page_size];
    index = page < 0 ? -1 : page * page_size + position % page_size;
  }
  const bool fits = index >= std::numeric_limits<std::int32_t>::min() &&
                    index <= std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(index) : -1;
}

void emit_row(Record* records, int count, int topk, dosa_order order, const IndexMap& map,
              Record* scratch, std::int32_t* indices, float* scores) {
  if (order == DOSA_ORDER_SCORE) {
    std::sort(records, records + count, std::greater<>());
  } else {
    sort_by_id(records, count, scratch);
  }
  write_row(records, count, topk, map, indices, scores);
}

void write_row(const Record* records, int count, int topk, const IndexMap& map,
               std::int32_t* indices, float* scores) {
  for (int n = 0; n < count; ++n) {
    indices[n] = map(record_id(records[n]));
    if (scores != nullptr) scores[n] = code_score(record_code(records[n]));
  }
  for (int n = count; n < topk; ++n) {
    indices[n] = -1;
    if (scores != nullptr) scores[n] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace dosa::select
