// SPDX-License-Identifier: Apache-2.0
// Ordering and writing one row's answer.
#pragma once

#include "select/radix_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {

__device__ __forceinline__ int32_t map_index(const OutputForm& form, int row, int start, int key) {
  if (form.table != nullptr) {
    const int place = key - start;
    const int32_t page = form.table[row * form.table_stride + place / form.page_size];
    return page * form.page_size + place % form.page_size;
  }
  const int32_t index = form.relative ? key - start : key;
  return form.offset != nullptr ? index + form.offset[row] : index;
}

/// Sorts the `count` records in `sorted` (shared memory, room for the next power of two) and writes
/// the row: mapped ids, then -1; scores, then NaN. The whole CTA calls this.
template <int kThreads>
__device__ void write_row(const OutputForm& form, int row, int start, uint64_t* sorted, int count) {
  const int thread = static_cast<int>(threadIdx.x);
  int size = 1;
  while (size < count) size *= 2;
  __syncthreads();
  for (int i = thread; i < size; i += kThreads) {
    uint64_t key = ~uint64_t{0};
    if (i < count) {
      const uint64_t record = sorted[i];
      // By id: id in the high word. By score: the complement ascends where the record descends.
      key = form.by_score
                ? ~record
                : static_cast<uint64_t>(static_cast<uint32_t>(numeric::record_key(record))) << 32 |
                      record >> 32;
    }
    sorted[i] = key;
  }
  sort_ascending<kThreads>(sorted, size);
  for (int i = thread; i < form.topk; i += kThreads) {
    int32_t index = -1;
    float score = __int_as_float(0x7fffffff);
    if (i < count) {
      const uint64_t key = sorted[i];
      const int id = form.by_score ? numeric::record_key(~key) : static_cast<int>(key >> 32);
      index = map_index(form, row, start, id);
      score = numeric::score_of_code(form.by_score ? static_cast<uint32_t>(~key >> 32)
                                                   : static_cast<uint32_t>(key));
    }
    form.indices[row * form.indices_stride + i] = index;
    if (form.scores != nullptr) form.scores[row * form.scores_stride + i] = score;
  }
}

}  // namespace dosa::select
