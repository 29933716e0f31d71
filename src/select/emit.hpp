// SPDX-License-Identifier: Apache-2.0
// Writes one row's answer: order, index form, scores, and the -1 suffix.
#ifndef DOSA_SELECT_EMIT_HPP
#define DOSA_SELECT_EMIT_HPP

#include <cstdint>

#include "dosa/dosa.h"
#include "numeric/order.hpp"

namespace dosa::select {

/// How key ids become output ids.
struct IndexMap {
  dosa_index_form form = DOSA_INDEX_ABSOLUTE;
  std::int32_t start = 0;               // clamped k_start of the row
  std::int32_t offset = 0;              // DOSA_INDEX_OFFSET
  const std::int32_t* table = nullptr;  // DOSA_INDEX_SLOT: (pages)
  std::int32_t page_size = 1;
  std::int64_t pages = 0;

  /// Positions behind the table map to -1: there is no slot to name.
  [[nodiscard]] std::int32_t operator()(std::int32_t id) const;
};

/// Ascending by key id. Shapes: records (count); scratch (count).
void sort_by_id(Record* records, int count, Record* scratch);

/// Shapes: records (count <= topk), any order, reordered; scratch (topk); indices (topk); scores
///         (topk) or null.
void emit_row(Record* records, int count, int topk, dosa_order order, const IndexMap& map,
              Record* scratch, std::int32_t* indices, float* scores);

/// The same for records that are in the order of the answer already.
void write_row(const Record* records, int count, int topk, const IndexMap& map,
               std::int32_t* indices, float* scores);

}  // namespace dosa::select

#endif  // DOSA_SELECT_EMIT_HPP
