// SPDX-License-Identifier: Apache-2.0
// What the kernels keep per query row while keys stream past.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/order_sm90.cuh"

namespace dosa::numeric {

enum RowFlag : uint32_t {
  kRowRecover = 1  // records were lost or no certificate is possible: scored again, all keys
};

/// Per-row arrays of one chunk of query rows; all are padded to whole blocks of rows.
struct RowState {
  int2* windows;           // clamped [start, end); (0, 0) for padding rows
  uint64_t* floor_record;  // the K-th best record so far; 0 while fewer than K keys are scored
  float* floor_score;      // its score; NaN while there is none
  float* bound_floor;      // a bound below this proves a key out; -Inf while there is none (N7)
  uint32_t* counts;        // records written, also those past the capacity
  uint32_t* flags;         // RowFlag
  uint64_t* records;       // (rows, capacity)
  int capacity;
  int rows;  // real rows of the chunk
};

/// Appends up to two records per lane for one row per lane class.
/// Lanes of one class (lane % kClasses) hold the same row; the whole warp calls this.
template <int kClasses>
__device__ __forceinline__ void append_records(const RowState& state, int row, bool first,
                                               uint64_t first_record, bool second,
                                               uint64_t second_record) {
  static_assert(kClasses == 1 || kClasses == 2 || kClasses == 4, "classes of a quad");
  constexpr uint32_t kPattern =
      kClasses == 1 ? 0xffffffffu : (kClasses == 2 ? 0x55555555u : 0x11111111u);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t same = kPattern << (lane % kClasses);
  const uint32_t firsts = __ballot_sync(0xffffffffu, first) & same;
  const uint32_t seconds = __ballot_sync(0xffffffffu, second) & same;
  const uint32_t count = __popc(firsts) + __popc(seconds);
  uint32_t base = 0;
  if (lane < kClasses && count != 0) base = atomicAdd(state.counts + row, count);
  base = __shfl_sync(0xffffffffu, base, lane % kClasses);
  const uint32_t before = (1u << lane) - 1;
  uint64_t* const records = state.records + static_cast<int64_t>(row) * state.capacity;
  const uint32_t at_first = base + __popc(firsts & before);
  const uint32_t at_second = base + __popc(firsts) + __popc(seconds & before);
  const uint32_t capacity = static_cast<uint32_t>(state.capacity);
  if (first && at_first < capacity) records[at_first] = first_record;
  if (second && at_second < capacity) records[at_second] = second_record;
}

}  // namespace dosa::numeric
