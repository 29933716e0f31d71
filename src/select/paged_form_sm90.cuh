// SPDX-License-Identifier: Apache-2.0
// What all ways of answering a decode step write alike.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "select/finish_sm90.cuh"

namespace dosa::select {

/// The form of a row of request b: tables and offsets of its own.
__device__ __forceinline__ OutputForm form_of(const OutputForm& form, int b) {
  OutputForm own = form;
  if (form.table != nullptr) own.table = form.table + b * form.table_stride;
  own.table_stride = 0;
  return own;
}

/// A row of request b that is answered without a look at its keys: all of them win, unscored.
__device__ __forceinline__ void write_short_row(const OutputForm& forms, int b, int row, int length,
                                                int thread, int threads) {
  const OutputForm form = form_of(forms, b);
#pragma unroll 1
  for (int i = thread; i < form.topk; i += threads) {
    const int32_t index = i < length ? map_index(form, row, 0, i) : -1;
    form.indices[row * form.indices_stride + i] = index;
    if (form.scores != nullptr) {
      form.scores[row * form.scores_stride + i] = __int_as_float(0x7fffffff);
    }
  }
}

__device__ __forceinline__ void write_short_state(uint32_t* state, int length, int thread,
                                                  int threads) {
  if (state == nullptr) return;
#pragma unroll 1
  for (int i = thread; i < length; i += threads) state[1 + i] = static_cast<uint32_t>(i);
  if (thread == 0) state[0] = static_cast<uint32_t>(length);
}

}  // namespace dosa::select
