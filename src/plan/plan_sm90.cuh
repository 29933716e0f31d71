// SPDX-License-Identifier: Apache-2.0
// The certificate of every query row, made on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"
#include "plan/product_rounding.hpp"

namespace dosa::plan {

/// The rules of dosa_options that the device follows (docs/math.md).
struct PlanRules {
  bool strength;    // retained negatives by |w| |q| alone
  bool projection;  // omitted positive heads lean on an anchor
  bool triangle;    // the allowance may be the triangle's
  bool joint;       // ... the joint one
  float support;    // negatives active on at least this share of the sample are aggregated
};

struct PlanParams {
  const uint8_t* queries;  // (rows, padded heads, 128) e4m3
  int64_t query_bytes;     // between rows
  const float* weights;    // (rows, heads), `weights_stride` apart
  int64_t weights_stride;
  int heads;
  int padded_heads;
  const uint32_t* active;  // (rows, padded heads + 1): how many of the hard keys, the last entry,
                           // each head is active on
  int screen_rows;         // R'
  PlanRules rules;
  ProductRounding rounding;
  numeric::RowState rows;
  const gpu::KeyOrder* orders;  // only blocks that are screened from place 0 on are planned
  const int* chosen;            // not null: nothing is planned unless this is screen_rows
  uint8_t* operand;             // (padded rows * R', 128) e4m3, ScreenLayout
  float* coefficients;          // (padded rows, R' + 2): R' coefficients, E, G
};

/// Chooses the retained heads, folds, aggregates and bounds every rounding outward.
/// Shapes:   above; `blocks` blocks of 64 rows
/// Guarantee: sum_R w~ [x]+ + E n(k) - [y - G n(k)]+ >= the computed payload score of the
///           key, with x and y the computed dot products of the operand's rows (E6, S16); rows
///           whose queries or weights are not finite are closed and flagged kRowRecover
/// Error:    cudaError_t of the launch
cudaError_t launch_plan_sm90(const PlanParams& params, int blocks, cudaStream_t stream);

}  // namespace dosa::plan
