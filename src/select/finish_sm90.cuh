// SPDX-License-Identifier: Apache-2.0
// Ordering and writing one row's answer.
#pragma once

#include "select/id_sort_sm90.cuh"
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

/// Writes -1 and NaN behind the row's `count` winners; the whole CTA calls this.
template <int kThreads>
__device__ void write_rest(const OutputForm& form, int row, int count) {
  for (int i = count + static_cast<int>(threadIdx.x); i < form.topk; i += kThreads) {
    form.indices[row * form.indices_stride + i] = -1;
    if (form.scores != nullptr) {
      form.scores[row * form.scores_stride + i] = __int_as_float(0x7fffffff);
    }
  }
}

/// Writes a row in order of its ids, all of which are below `length`; the whole CTA calls this.
/// Shapes:   records (count), scratch (count), bins (kIdBins) as visit_by_id() wants them
template <int kThreads>
__device__ void write_by_id(uint32_t* warp_sums, uint32_t* bins, const OutputForm& form, int row,
                            int start, int length, const uint64_t* records, int count,
                            uint64_t* scratch) {
  int32_t* const indices = form.indices + row * form.indices_stride;
  float* const scores = form.scores != nullptr ? form.scores + row * form.scores_stride : nullptr;
  write_rest<kThreads>(form, row, count);
  visit_by_id<kThreads>(warp_sums, bins, records, count, length, scratch,
                        [&](int rank, uint64_t record) {
                          indices[rank] = map_index(form, row, start, numeric::record_key(record));
                          if (scores != nullptr) scores[rank] = numeric::record_score(record);
                        });
}

/// Sorts the `count` records (shared memory, room for the next power of two) and writes the row in
/// order of its scores; the whole CTA calls this.
template <int kThreads>
__device__ void write_by_score(const OutputForm& form, int row, int start, uint64_t* records,
                               int count) {
  const int thread = static_cast<int>(threadIdx.x);
  int size = 1;
  while (size < count) size *= 2;
  __syncthreads();
  // The complement of a record ascends where the record descends.
  for (int i = thread; i < size; i += kThreads) records[i] = i < count ? ~records[i] : ~uint64_t{0};
  sort_ascending<kThreads>(records, size);
  write_rest<kThreads>(form, row, count);
  for (int i = thread; i < count; i += kThreads) {
    const uint64_t record = ~records[i];
    form.indices[row * form.indices_stride + i] =
        map_index(form, row, start, numeric::record_key(record));
    if (form.scores != nullptr) {
      form.scores[row * form.scores_stride + i] = numeric::record_score(record);
    }
  }
}

}  // namespace dosa::select
