// SPDX-License-Identifier: Apache-2.0
// Step 1 of decoding: tokens that scored well in the step before are scored first, so that the scan
// begins with a threshold.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/paged_sm90.cuh"

namespace dosa::select {

/// Tokens that a state remembers: the K winners and half as many runners-up.
__host__ __device__ __forceinline__ int witness_capacity(int topk) { return topk + (topk + 1) / 2; }

/// Is a request long enough for scoring so many tokens first to be a shortcut?
__host__ __device__ __forceinline__ bool worth_witnesses(int64_t length, int topk) {
  return 2 * length >= 5 * static_cast<int64_t>(witness_capacity(topk));
}

/// The caller's states; `memory` null: none.
struct WitnessStates {
  uint8_t* memory;
  int64_t stride;
  int count;
  const int32_t* index;  // (requests); null: request b has state b
  int64_t first;         // number of the chunk's first request
};

/// The words of request b's state: a count, then ids; null where there is none.
__device__ __forceinline__ uint32_t* state_of(const WitnessStates& states, int b) {
  if (states.memory == nullptr) return nullptr;
  const int64_t index = states.index != nullptr ? states.index[b] : states.first + b;
  if (index < 0 || index >= states.count) return nullptr;
  return reinterpret_cast<uint32_t*>(states.memory + index * states.stride);
}

constexpr int kWitnessCtas = 8;  // of a request, at most

/// What was scored first; all in the workspace.
struct WitnessResults {
  numeric::RowFloor* floors;  // (rows)
  uint32_t* codes;            // (rows, capacity) 0: not visible to the row, or NaN
  uint32_t* broken;  // (requests, kWitnessCtas) a CTA's share of the state is not ascending
  uint32_t* bins;    // (rows, kFloorBins) set to zeros for the scan; null: not wanted
};

struct WitnessParams {
  numeric::PagedStep step;
  WitnessStates states;
  bool use_states;  // false: spread tokens only
  WitnessResults results;
  int ctas;  // of a request; set by the launcher
};

/// Scores, for every request that is long enough, the distinct visible tokens of its state, or,
/// where those are fewer than K, as many tokens spread evenly over it. Guarantee: floors are proven
/// (E2): each code is reached by K distinct tokens of the row, or 0
cudaError_t launch_paged_witness_sm90(const WitnessParams& params, int padded_heads,
                                      int multiprocessors, cudaStream_t stream);

}  // namespace dosa::select
