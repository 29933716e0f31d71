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
  int2* visible;           // clamped [start, end); (0, 0) for padding rows
  int2* windows;           // of these, the keys that are not forced: what the scan ranks
  uint64_t* floor_record;  // the K-th best record so far; 0 while fewer than K keys are scored
  float* floor_score;      // its score; NaN while there is none
  float* bound_floor;      // a bound below this rejects a key; -Inf while there is none (N11)
  float* optimistic;       // the estimate behind bound_floor that is still to be proven; -Inf: none
  uint32_t* counts;        // records written, also those past the capacity
  uint32_t* flags;         // RowFlag
  uint64_t* records;       // (rows, capacity)
  int capacity;
  int rows;  // real rows of the chunk
};

/// No key reaches the row's floors any more; it is flagged for recovery, which starts from `floor`,
/// a proven one (0: none), left in the row's first record.
__device__ __forceinline__ void close_row(const RowState& rows, int row, uint64_t floor) {
  const float infinity = __int_as_float(0x7f800000);
  rows.flags[row] |= kRowRecover;
  rows.counts[row] = 0;
  rows.records[static_cast<int64_t>(row) * rows.capacity] = floor;
  rows.floor_record[row] = ~uint64_t{0};
  rows.floor_score[row] = infinity;
  rows.bound_floor[row] = infinity;
}

/// The forced keys of a row: in front of and behind what the scan ranks. They are records from the
/// start, with score +Inf, as many as the row selects, lowest ids first.
struct ForcedKeys {
  int front;  // id of the first forced key
  int back;   // of the first one behind the ranked keys
  int front_count;
  int count;

  __device__ __forceinline__ ForcedKeys(const RowState& state, int row, int topk) {
    const int2 visible = state.visible[row];
    const int2 ranked = state.windows[row];
    front = visible.x;
    back = ranked.y;
    const int before = ranked.x - visible.x;
    front_count = before < topk ? before : topk;
    const int behind = visible.y - ranked.y;
    const int room = topk - front_count;
    count = front_count + (behind < room ? behind : room);
  }

  [[nodiscard]] __device__ __forceinline__ uint64_t record(int index) const {
    const int key = index < front_count ? front + index : back + index - front_count;
    return make_record(__int_as_float(0x7f800000), key);
  }
};

/// Up to two records per lane on their way to the rows' memory: begin() asks for room, finish()
/// writes. Between them the atomic's answer may be on its way.
/// Lanes of one class (lane % kClasses) hold the same row; the whole warp calls both.
template <int kClasses>
struct PendingRecords {
  static_assert(kClasses == 1 || kClasses == 2 || kClasses == 4, "classes of a quad");
  static constexpr uint32_t kPattern =
      kClasses == 1 ? 0xffffffffu : (kClasses == 2 ? 0x55555555u : 0x11111111u);

  uint64_t records[2];
  uint32_t votes[2] = {0, 0};  // lanes of this class that have a first, a second record
  uint32_t base = 0;           // of the class, known to its first lane
  int row = 0;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ __forceinline__ void begin(const RowState& state, int to_row, const bool (&keep)[2],
                                        const uint64_t (&values)[2]) {
    row = to_row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      records[i] = values[i];
      votes[i] = __ballot_sync(0xffffffffu, keep[i]) & kPattern << (lane() % kClasses);
    }
    const uint32_t count = __popc(votes[0]) + __popc(votes[1]);
    if (lane() < kClasses && count != 0) base = atomicAdd(state.counts + row, count);
  }

  __device__ __forceinline__ void finish(const RowState& state) {
    if (!__any_sync(0xffffffffu, (votes[0] | votes[1]) != 0)) return;
    const uint32_t first = __shfl_sync(0xffffffffu, base, lane() % kClasses);
    const uint32_t before = (1u << lane()) - 1;
    uint64_t* const memory = state.records + static_cast<int64_t>(row) * state.capacity;
    const uint32_t at[2] = {first + __popc(votes[0] & before),
                            first + __popc(votes[0]) + __popc(votes[1] & before)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool own = (votes[i] >> lane() & 1) != 0;
      if (own && at[i] < static_cast<uint32_t>(state.capacity)) memory[at[i]] = records[i];
      votes[i] = 0;
    }
  }
};

}  // namespace dosa::numeric
