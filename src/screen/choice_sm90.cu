// SPDX-License-Identifier: Apache-2.0
#include "screen/choice_sm90.cuh"

#include <climits>

namespace dosa::screen {
namespace {

constexpr int kThreads = gpu::kMaxBlocks;  // one per block of rows

/// One CTA. A block of which too much survives falls back to dense scoring.
__global__ void __launch_bounds__(kThreads)
    choice_sm90_kernel(const __grid_constant__ ChoiceParams params) {
  __shared__ float total;
  __shared__ int scouts;
  __shared__ int chosen;
  const SurvivorParams& survivors = params.survivors;
  const int block = static_cast<int>(threadIdx.x);
  if (block == 0) {
    total = 0.0f;
    scouts = 0;
  }
  __syncthreads();
  if (block < survivors.round.blocks) {
    const int units = gpu::round_units(survivors.round, survivors.round.orders[block]);
    if (units > 0) {
      const int groups = gpu::kBlockRows / survivors.lists.group_rows;
      int64_t listed = 0;
      for (int i = 0; i < groups; ++i) listed += survivors.lists.counts[block * groups + i];
      const float share = static_cast<float>(listed) /
                          (static_cast<float>(groups) * static_cast<float>(units * gpu::kUnitKeys));
      const int all_units = survivors.round.orders[block].units;
      const float fixed = Cost::kFixedKeys / static_cast<float>(all_units * gpu::kUnitKeys);
      const float screening = Cost::kScreen * static_cast<float>(params.widths[params.index]) /
                              static_cast<float>(params.padded_heads);
      const float seen = static_cast<float>(survivors.round.begin) / static_cast<float>(all_units);
      const float later = Cost::kLater * powf(seen, Cost::kLaterPower) * share;
      const float refining = Cost::kSurvivor * later;
      const float dense = Cost::kDense + Cost::kWasted * screening;
      atomicAdd(&total, fixed + (later > kMostSurvivors ? dense : screening + refining));
      atomicAdd(&scouts, 1);
    }
  }
  __syncthreads();
  if (block == 0) {
    Choice& choice = *params.choice;
    choice.cost[params.index] = scouts > 0 ? total / static_cast<float>(scouts) : Cost::kDense;
    choice.screen_rows = 0;
    if (params.index == params.num_widths - 1) {
      int best = params.usual;
      const float usual = choice.cost[best];
      const bool longest = survivors.num_keys >= Cost::kLongestKeys;
      const float wider = longest ? Cost::kWiderLongest : Cost::kWider;
      float least = usual;
      for (int i = 0; i < params.num_widths; ++i) {
        const float clear = i < params.usual ? Cost::kNarrower : wider;
        if (i == params.usual || !(choice.cost[i] < fminf(least, clear * usual))) continue;
        best = i;
        least = choice.cost[i];
      }
      const float most = params.long_context ? Cost::kMostLong : Cost::kMostShort;
      const bool worth = choice.cost[best] < most * Cost::kDense || !params.may_decline;
      choice.screen_rows = worth ? params.widths[best] : 0;
    }
    chosen = choice.screen_rows;
  }
  __syncthreads();
  if (params.index != params.num_widths - 1 || block >= survivors.round.blocks) return;
  survivors.orders[block].split_from = chosen != 0 ? 0 : INT_MAX;
}

}  // namespace

cudaError_t launch_choice_sm90(const ChoiceParams& params, cudaStream_t stream) {
  const cudaError_t status = launch_count_survivors_sm90(params.survivors, stream);
  if (status != cudaSuccess) return status;
  choice_sm90_kernel<<<1, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace dosa::screen
