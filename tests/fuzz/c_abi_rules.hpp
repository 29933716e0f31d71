// SPDX-License-Identifier: Apache-2.0
//
// What dosa.h says about calls that are refused, written down a second time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dosa/dosa.h"

namespace dosa::fuzz {

constexpr std::uint64_t kLeastLimit = std::uint64_t{16} << 20;

inline bool inside(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value >= low && value <= high;
}

/// Whether dosa.h allows these sizes and options.
inline bool allows_shape(const dosa_problem& p, const dosa_options& o) {
  if (p.struct_size != sizeof p || o.struct_size != sizeof o) return false;
  const bool sizes = inside(p.num_queries, 0, std::int64_t{1} << 40) &&
                     inside(p.num_keys, 0, 0x7fffffff) && inside(p.num_heads, 1, DOSA_MAX_HEADS) &&
                     inside(p.head_dim, 16, DOSA_MAX_HEAD_DIM) && p.head_dim % 16 == 0 &&
                     inside(p.topk, 1, DOSA_MAX_TOPK);
  const bool words =
      inside(o.mode, 0, 4) && inside(o.threshold, 0, 1) && inside(o.index_form, 0, 3) &&
      inside(o.order, 0, 1) && inside(o.heads, 0, p.num_heads) && inside(o.threads, 0, 1024) &&
      o.forced_first >= 0 && o.forced_last >= 0 && inside(o.retain, 0, 1) &&
      inside(o.projection, 0, 1) && inside(o.allowance, 0, 3) && inside(o.aggregate, 0, 4) &&
      inside(o.statistics, 0, 2) && inside(o.score_model, 0, 1);
  const bool groups =
      (o.allowance_groups == 2 || o.allowance_groups == 4 || o.allowance_groups == 8) &&
      (o.allowance != DOSA_ALLOWANCE_GROUPED || p.head_dim % (8 * o.allowance_groups) == 0);
  return sizes && words && groups && o.workspace_limit >= kLeastLimit;
}

inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 4 == 0;
}

inline std::int64_t clamped(std::int64_t id, std::int64_t keys) {
  return std::min(std::max<std::int64_t>(id, 0), keys);
}

/// Whether every visible position has an entry of the page table.
inline bool table_reaches(const dosa_problem& p) {
  for (std::int64_t row = 0; row < p.num_queries; ++row) {
    const std::int64_t begin = clamped(p.k_start != nullptr ? p.k_start[row] : 0, p.num_keys);
    const std::int64_t end = clamped(p.k_end != nullptr ? p.k_end[row] : p.num_keys, p.num_keys);
    if (end > begin && (end - begin - 1) / p.page_size >= p.page_table_pages) return false;
  }
  return true;
}

/// Whether dosa.h allows these arrays.
inline bool allows_inputs(const dosa_problem& p, const dosa_options& o) {
  const bool queries = p.num_queries > 0;
  if (queries && (p.q == nullptr || p.weights == nullptr)) return false;
  if (p.num_keys > 0 && (p.k == nullptr || p.k_scale == nullptr)) return false;
  for (const void* array :
       {static_cast<const void*>(p.k_scale), static_cast<const void*>(p.weights),
        static_cast<const void*>(p.k_start), static_cast<const void*>(p.k_end),
        static_cast<const void*>(p.index_offset), static_cast<const void*>(p.page_table)}) {
    if (!aligned(array)) return false;
  }
  if (p.q_stride < static_cast<std::int64_t>(p.num_heads) * p.head_dim || p.k_stride < p.head_dim ||
      p.weights_stride < p.num_heads) {
    return false;
  }
  if (!queries) return true;
  if (o.index_form == DOSA_INDEX_OFFSET) return p.index_offset != nullptr;
  if (o.index_form != DOSA_INDEX_SLOT) return true;
  const bool stride = p.page_table_stride == 0 || p.page_table_stride >= p.page_table_pages;
  return p.page_table != nullptr && stride && p.page_size >= 1 && table_reaches(p);
}

/// Whether dosa.h allows these outputs.
inline bool allows_output(const dosa_problem& p, const dosa_output& out) {
  if (out.struct_size != sizeof out) return false;
  if (out.stats != nullptr && out.stats->struct_size != sizeof *out.stats) return false;
  if (p.num_queries > 0 && out.indices == nullptr) return false;
  if (!aligned(out.indices) || !aligned(out.scores)) return false;
  return out.indices_stride >= p.topk && (out.scores == nullptr || out.scores_stride >= p.topk);
}

}  // namespace dosa::fuzz
