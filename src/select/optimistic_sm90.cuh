// SPDX-License-Identifier: Apache-2.0
// Optimistic thresholds: keys are rejected by an estimate of the final K-th score, and the estimate
// is proven afterwards (docs/math.md, E20).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"
#include "select/radix_sm90.cuh"

namespace dosa::select {

/// What the estimate is made of: the keys at places [0, visited) of each block's order are a sample
/// of whole units of all its keys.
struct Optimism {
  const gpu::KeyOrder* orders;  // null: no estimates
  int visited;
};

/// Sum over units of the squares of how many records from `bound` on lie in them; forced keys
/// outside the window do not count. The whole CTA calls this.
template <int kThreads>
__device__ float unit_squares(RadixShared& shared, const uint64_t* records, int count,
                              uint64_t bound, int2 window) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  for (int i = thread; i < kBins; i += kThreads) shared.histogram[i] = 0;
  if (thread == 0) shared.cursor = 0;
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) {
    const int key = numeric::record_key(records[i]);
    if (records[i] < bound || key < window.x || key >= window.y) continue;
    atomicAdd(&shared.histogram[static_cast<uint32_t>(key / gpu::kUnitKeys) % kBins], 1u);
  }
  __syncthreads();
  uint32_t squares = 0;
  for (int i = thread; i < kBins; i += kThreads) {
    squares += shared.histogram[i] * shared.histogram[i];
  }
  squares = __reduce_add_sync(0xffffffffu, squares);
  if ((thread & 31) == 0) atomicAdd(&shared.cursor, squares);
  __syncthreads();
  return static_cast<float>(shared.cursor);
}

/// The score that the final K-th best reaches but for bad luck (E21); NaN where the records do not
/// say.
/// With a share f of the keys visited, K f of the winners are expected among the records, with the
/// variance of a sample of clusters: sum_u n_u^2 - n^2 / visited, at least n, times (1 - f), where
/// n_u of the n best records lie in unit u. Which n: those of the estimate itself, so the second
/// look counts the records that the first one asked for. The whole CTA calls this.
template <int kThreads>
__device__ float optimistic_score(RadixShared& shared, const Optimism& optimism,
                                  const numeric::RowState& rows, int row, int topk,
                                  const uint64_t* records, int count) {
  constexpr int kLooks = 2;
  constexpr int kLeastShare = 2;  // the row sees at least half of what its block visits
  const float unknown = __int_as_float(0x7fffffff);
  const gpu::KeyOrder order = optimism.orders[row / gpu::kBlockRows];
  const int2 window = rows.windows[row];
  const int visited = optimism.visited;
  if (visited >= order.units) return unknown;
  if ((window.y - window.x) / gpu::kUnitKeys < order.units / kLeastShare) return unknown;
  const int forced = numeric::ForcedKeys(rows, row, topk).count;
  const float share = static_cast<float>(visited) / static_cast<float>(order.units);
  const float expected = static_cast<float>(topk - forced) * share;
  // A failure costs a scan whenever it happens, a loose estimate most where much is still to come.
  const float deviations = 3.0f + 2.0f * share;
  const float skew = deviations * deviations / 2.0f;  // small counts have a longer tail
  int rank = forced + static_cast<int>(ceilf(expected));
  uint64_t reached = 0;
  for (int look = 0;; ++look) {
    if (rank < 1 || rank >= count) return unknown;
    reached = rank_bound<kThreads>(shared, records, count, rank);
    if (look == kLooks) break;
    const float known = static_cast<float>(rank - forced);
    const float squares = unit_squares<kThreads>(shared, records, count, reached, window);
    const float between = squares - known * known / static_cast<float>(visited);
    const float variance = fmaxf(between, known) * (1.0f - share);
    const float margin = deviations * sqrtf(variance) + skew;
    const int wanted = forced + static_cast<int>(ceilf(expected + margin));
    __syncthreads();
    if (wanted <= rank) break;
    rank = wanted;
  }
  const float score = numeric::score_of_code(static_cast<uint32_t>(reached >> 32));
  return fabsf(score) < __int_as_float(0x7f800000) ? score : unknown;
}

/// Closes the rows whose estimate was too high and flags them kRowRecover.
/// Guarantee: of any other row with an estimate t, the K-th best record scores at least t, so the
///           keys rejected by a bound below t are no winners, ties included
cudaError_t launch_prove_sm90(const numeric::RowState& rows, cudaStream_t stream);

}  // namespace dosa::select
