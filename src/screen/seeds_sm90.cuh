// SPDX-License-Identifier: Apache-2.0
// Better first thresholds: the winners of a few pilot rows are scored for the rows around them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"
#include "screen/survivors_sm90.cuh"

namespace dosa::screen {

constexpr int kPilotStride = 32;  // one pilot row in 32, in the middle of its rows

/// Room for the winners of two pilots, in whole tiles of 64 keys.
__host__ __device__ constexpr int64_t seed_keys(int topk) { return (2 * topk + 63) / 64 * 64; }

struct SeedParams {
  const int32_t* pilots;  // (pilot rows, K) ascending ids, then -1; of the whole call
  int pilot_rows;
  int topk;
  int64_t first_row;  // of the chunk, in the call
  int blocks;
  const gpu::KeyOrder* orders;
  int sample_units;  // places [0, sample_units) of every order are scored already
  SurvivorLists lists;
};

/// Windows of the pilot rows: every kPilotStride-th, from the middle on; null inputs stay null.
cudaError_t launch_pilot_windows_sm90(const int32_t* k_start, const int32_t* k_end, int pilot_rows,
                                      int32_t* pilot_start, int32_t* pilot_end,
                                      cudaStream_t stream);

/// Lists for every group the distinct winners of its two nearest pilots that lie outside the
/// sample. Guarantee: no key twice in a list, none of the sample's
cudaError_t launch_seeds_sm90(const SeedParams& params, cudaStream_t stream);

/// Takes the seeds out of the records again: they only raised the floors, and the scan meets them.
/// Guarantee: records of the sample and of forced keys stay; a key equal to the floor's record is
/// still accepted (E2)
cudaError_t launch_drop_seeds_sm90(const numeric::RowState& rows, int topk,
                                   const gpu::KeyOrder* orders, int sample_units,
                                   cudaStream_t stream);

}  // namespace dosa::screen
