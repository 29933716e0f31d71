// SPDX-License-Identifier: Apache-2.0
// One CTA per row: its scores become order codes in shared memory, three digits of which find the
// K-th, and ballots put the winners in the order of their ids.
#include "select/select_short_sm90.cuh"

#include "select/code_select_sm90.cuh"
#include "select/finish_sm90.cuh"

namespace dosa::select {
namespace {

struct Config {
  static constexpr int kThreads = 1024;
  static constexpr int kRegisters = 32;        // where an SM has 2,048 threads it takes two CTAs
  static constexpr int kMostKeys = 24 * 1024;  // of which two CTAs fit one SM
};

extern __shared__ __align__(16) uint8_t dynamic_shared[];

__global__ void __maxnreg__(Config::kRegisters)
    select_short_sm90_kernel(const __grid_constant__ numeric::RowState rows, const float* scores,
                             int64_t stride, int room, const __grid_constant__ OutputForm form) {
  __shared__ RadixShared shared;
  auto* const codes = reinterpret_cast<uint32_t*>(dynamic_shared);
  const int row = static_cast<int>(blockIdx.x);
  const int2 visible = rows.visible[row];
  load_codes<Config::kThreads>(scores + row * stride, visible, rows.windows[row], codes);
  if (threadIdx.x == 0) shared.in_bin = ~0u;
  __syncthreads();
  const int length = visible.y - visible.x;
  const int kept = length < form.topk ? length : form.topk;
  CodeBound bound{0, INT_MAX};  // takes all
  if (kept > 0 && kept < length) {
    bound = code_bound<Config::kThreads>(shared, codes, length, kept);
    if (threadIdx.x == 0) shared.in_bin = ~0u;
  }
  const bool report = form.stats != nullptr && kept == form.topk;
  if (form.by_score) {
    auto* const records = reinterpret_cast<uint64_t*>(codes + room);
    visit_codes<Config::kThreads>(shared, codes, length, bound,
                                  [&](int rank, int place, uint32_t code) {
                                    const float score = numeric::score_of_code(code);
                                    records[rank] = numeric::make_record(score, visible.x + place);
                                    if (report) atomicMin(&shared.in_bin, code);
                                  });
    write_by_score<Config::kThreads>(form, row, visible.x, records, kept);
  } else {
    int32_t* const indices = form.indices + row * form.indices_stride;
    float* const to = form.scores != nullptr ? form.scores + row * form.scores_stride : nullptr;
    write_rest<Config::kThreads>(form, row, kept);
    visit_codes<Config::kThreads>(
        shared, codes, length, bound, [&](int rank, int place, uint32_t code) {
          indices[rank] = map_index(form, row, visible.x, visible.x + place);
          if (to != nullptr) to[rank] = numeric::score_of_code(code);
          if (report) atomicMin(&shared.in_bin, code);
        });
    __syncthreads();
  }
  if (report && threadIdx.x == 0) form.stats[row].kth_score = numeric::score_of_code(shared.in_bin);
}

int room_of(int64_t num_keys) { return static_cast<int>((num_keys + 3) / 4 * 4); }

int dynamic_bytes(int64_t num_keys, const OutputForm& form) {
  int sorted = 1;
  while (sorted < form.topk) sorted *= 2;
  return room_of(num_keys) * static_cast<int>(sizeof(uint32_t)) +
         (form.by_score ? sorted * static_cast<int>(sizeof(uint64_t)) : 0);
}

}  // namespace

cudaError_t fits_select_short_sm90(int64_t num_keys, const OutputForm& form, bool& fits) {
  int device = 0;
  int most = 0;
  fits = false;
  if (num_keys > Config::kMostKeys) return cudaSuccess;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  fits = dynamic_bytes(num_keys, form) + static_cast<int>(sizeof(RadixShared)) <= most;
  return status;
}

cudaError_t launch_select_short_sm90(const numeric::RowState& rows, const float* scores,
                                     int64_t stride, int64_t num_keys, const OutputForm& form,
                                     cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  if (num_keys > Config::kMostKeys) return cudaErrorInvalidValue;
  const int bytes = dynamic_bytes(num_keys, form);
  const cudaError_t status = cudaFuncSetAttribute(
      select_short_sm90_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  select_short_sm90_kernel<<<rows.rows, Config::kThreads, bytes, stream>>>(rows, scores, stride,
                                                                           room_of(num_keys), form);
  return cudaGetLastError();
}

}  // namespace dosa::select
