// SPDX-License-Identifier: Apache-2.0
// What the kernels need before the first product: key norms, clamped windows, key orders.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"

namespace dosa::plan {

/// Scale and norm bound of every key, padded to whole units.
/// Shapes:   k (N, D) e4m3, `k_stride` apart; k_scale (N) f32 -> meta (units * 256)
/// Guarantee: norm n(k) >= |k| and 5 X(k) in payload units (S11), rounded up; NaN where the key may
///           not be pruned: its scale is not a positive normal number below 2^51, or it holds a NaN
///           code
cudaError_t launch_key_meta_sm90(const uint8_t* k, int64_t k_stride, int head_dim,
                                 const float* k_scale, int64_t num_keys, int units, float2* meta,
                                 cudaStream_t stream);

struct RowSetup {
  const int32_t* k_start;  // of the chunk's first row; null: 0
  const int32_t* k_end;    // null: N
  int num_keys;
  int blocks;
  int topk;
  int forced_first;  // the first and last keys of a row that are selected whatever they score
  int forced_last;
  bool in_order;     // visit keys by id instead of spread over the context
  int scout_stride;  // KeyOrder::split_from is 0 for every such block, INT_MAX for others
};

/// Windows, the records of forced keys and open floors of every row; key order of every block.
cudaError_t launch_row_setup_sm90(const RowSetup& setup, const numeric::RowState& rows,
                                  gpu::KeyOrder* orders, cudaStream_t stream);

/// Zeros appended behind the real heads and coordinates, rows packed:
/// q (rows, H, D) -> (rows, padded, 128).
cudaError_t launch_pack_heads_sm90(const uint8_t* q, int64_t q_stride, int head_dim, int heads,
                                   int padded_heads, int rows, uint8_t* packed,
                                   cudaStream_t stream);

}  // namespace dosa::plan
