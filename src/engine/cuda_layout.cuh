// SPDX-License-Identifier: Apache-2.0
// Shapes of one call on the device and the workspace they need.
#ifndef DOSA_ENGINE_CUDA_LAYOUT_CUH
#define DOSA_ENGINE_CUDA_LAYOUT_CUH

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "dosa/dosa.h"
#include "gpu/key_order.cuh"
#include "numeric/row_state_sm90.cuh"
#include "screen/choice_sm90.cuh"
#include "screen/survivors_sm90.cuh"
#include "select/report_sm90.cuh"

namespace dosa::engine {

/// How the keys of a row are processed.
enum class CudaPath {
  kBase,   // store every score of a chunk of rows, then select
  kFull,   // every head of every key, records of scores above the floor
  kScreen  // dense first rounds, then screening and refinement
};

/// Everything that follows from a problem's shape and the options.
struct CudaShape {
  CudaPath path;
  int64_t num_queries;
  int num_keys;
  int heads;         // real
  int padded_heads;  // 32, 64 or 128
  int head_dim;      // 32, 64 or 128; shorter rows are read with zeros behind them
  int topk;
  int units;       // of 256 keys that cover N
  int chunk_rows;  // query rows processed together, a multiple of 64
  int record_capacity;
  int widths[screen::kMostWidths];  // R' to choose from, ascending
  int num_widths;
  int usual_width;       // index of the one that is right on most inputs
  bool may_decline;      // every key may be scored with every head instead
  int dense_units;       // scored with every head before the first screened round
  int mask_units;        // units of the largest screened round
  bool pack_queries;     // heads, widths or strides differ from what the kernels read
  int64_t score_stride;  // kBase: floats between rows
};

/// Device counters, first in the workspace.
struct CudaTotals {
  unsigned long long refined;
  unsigned long long recovered;
};

/// Device arrays inside the caller's workspace.
struct CudaBuffers {
  CudaTotals* totals;
  int* lost_groups;           // (groups + 1)
  dosa_row_stats* row_stats;  // (rows), where the caller gives no room
  select::RowTrace* row_traces;
  float2* key_meta;  // (units * 256)
  numeric::RowState rows;
  gpu::KeyOrder* orders;  // (blocks)
  uint8_t* packed_queries;
  float* scores;            // kBase
  float* hard_floor;        // kScreen, all below: (rows)
  uint32_t* active;         // (rows, padded heads + 1)
  uint8_t* screen_operand;  // (rows * R', 128) e4m3
  float* coefficients;      // (rows, R' + 2)
  screen::Choice* choice;
  uint32_t* masks;
  screen::SurvivorLists lists;
};

/// The shape of a valid problem (check_cuda_shape) under valid options.
CudaShape make_cuda_shape(const dosa_problem& problem, const dosa_options& options);

/// Places the buffers from `base` on (null to measure) and returns the bytes they take.
size_t place_cuda_buffers(const CudaShape& shape, void* base, CudaBuffers& buffers);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_LAYOUT_CUH
