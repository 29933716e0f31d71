// SPDX-License-Identifier: Apache-2.0
// Which width of screening a chunk of rows uses, or none: decided on the device from a few blocks.
#pragma once

#include <cuda_runtime.h>

#include "gpu/key_order.cuh"
#include "screen/survivors_sm90.cuh"

namespace dosa::screen {

constexpr int kScoutStride = 16;  // one block of rows in sixteen is screened first
constexpr int kMostWidths = 3;    // to choose from

/// What the scouts told; lies in device memory.
struct Choice {
  int screen_rows;          // R' of the chunk; 0: every key is scored with every head
  float cost[kMostWidths];  // of a (row, key) pair by width, in units of scoring it with every head
};

/// Costs of a pair in units of scoring it with every head, measured on one H200 (docs/kernels.md).
struct Cost {
  static constexpr float kScreen = 0.9f;         // times R' / H
  static constexpr float kSurvivor = 2.6f;       // refinement and lists, per listed pair
  static constexpr float kFixedKeys = 24576.0f;  // plan, reductions: as long as that many keys
  static constexpr float kLater = 1.3f;          // later survivors, of those of the scouts' round:
  static constexpr float kLaterPower = 0.22f;    // kLater * (share of keys seen before)^kLaterPower
  static constexpr float kWasted = 0.5f;         // of its screening, where a block falls back
  static constexpr float kDense = 1.0f;
  // A forecast must be clear before it overrules what is right on most traces: the usual width at
  // long contexts, full scoring at short ones.
  static constexpr float kNarrower = 0.9f;  // of the usual width's cost
  // Later rounds of a very long context keep less than forecast, the usual width most of all.
  static constexpr float kWider = 1.0f;
  static constexpr float kWiderLongest = 0.9f;
  static constexpr int kLongestKeys = 640 * 1024;
  static constexpr float kMostLong = 1.15f;
  static constexpr float kMostShort = 0.85f;
};

struct ChoiceParams {
  SurvivorParams survivors;  // of the scouts' round
  int index;                 // which width was screened, ascending
  int widths[kMostWidths];
  int num_widths;
  int usual;  // index of the width that is taken unless another one is clearly better
  int padded_heads;
  bool long_context;
  bool may_decline;  // false: some width is chosen whatever it costs
  Choice* choice;
};

/// Weighs the survivors of the scouts' screening with widths[index]; after the last one chooses and
/// opens all blocks (split_from 0), or closes all to screening where none is worth it.
/// Guarantee: the answer does not depend on the choice
cudaError_t launch_choice_sm90(const ChoiceParams& params, cudaStream_t stream);

}  // namespace dosa::screen
