// SPDX-License-Identifier: Apache-2.0
#include "select/recover_passes_sm90.cuh"

#include "select/radix_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {
namespace {

constexpr int kListThreads = 1024;

/// A lost row begins again: the records of its forced keys, and `floor`, which is to be found
/// again. `threads` threads share the work.
__device__ void reopen_row(const numeric::RowState& rows, int row, int topk, uint64_t floor,
                           int thread, int threads) {
  const numeric::ForcedKeys forced(rows, row, topk);
  uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
  for (int i = thread; i < forced.count; i += threads) records[i] = forced.record(i);
  if (thread != 0) return;
  rows.counts[row] = static_cast<uint32_t>(forced.count);
  rows.floor_record[row] = floor > 0 ? floor - 1 : 0;
}

/// One CTA: the groups with lost rows. The first time the rows come from close_row().
__global__ void __launch_bounds__(kListThreads)
    list_lost_sm90_kernel(const __grid_constant__ RecoverParams params, int group_rows,
                          bool first_time) {
  __shared__ int filled;
  const int thread = static_cast<int>(threadIdx.x);
  const numeric::RowState& rows = params.rows;
  if (thread == 0) filled = 0;
  __syncthreads();
  const int groups = (rows.rows + group_rows - 1) / group_rows;
  for (int group = thread; group < groups; group += kListThreads) {
    bool any = false;
    for (int i = 0; i < group_rows; ++i) any = any || is_lost(rows, group * group_rows + i);
    if (any) params.lost[1 + atomicAdd(&filled, 1)] = group;
  }
  __syncthreads();
  if (thread == 0) params.lost[0] = filled;
  if (!first_time) return;
  for (int row = thread; row < rows.rows; row += kListThreads) {
    if (!is_lost(rows, row)) continue;
    const uint64_t floor = rows.records[static_cast<int64_t>(row) * rows.capacity];
    reopen_row(rows, row, params.topk, floor, 0, 1);
    atomicAdd(params.recovered, 1ull);
  }
}

constexpr int kSettleThreads = 256;

/// Rows whose records fit are done; the others begin again with the better floor of what was kept.
__global__ void __launch_bounds__(kSettleThreads)
    settle_lost_sm90_kernel(const __grid_constant__ RecoverParams params, int group_rows) {
  __shared__ RadixShared shared;
  __shared__ uint64_t kept[kMaxTopk];
  const numeric::RowState& rows = params.rows;
  if (params.lost[0] > static_cast<int>(gridDim.x)) return;  // not scored either
  const int listed = params.lost[0] * group_rows;
  for (int i = static_cast<int>(blockIdx.x); i < listed; i += static_cast<int>(gridDim.x)) {
    const int row = params.lost[1 + i / group_rows] * group_rows + i % group_rows;
    if (!is_lost(rows, row)) continue;
    const uint32_t written = rows.counts[row];
    __syncthreads();
    if (written <= static_cast<uint32_t>(rows.capacity)) {
      if (threadIdx.x == 0) rows.flags[row] &= ~numeric::kRowRecover;
      continue;
    }
    const uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
    const uint64_t bound = rank_bound<kSettleThreads>(shared, records, rows.capacity, params.topk);
    const uint64_t least =
        keep_records<kSettleThreads>(shared, records, rows.capacity, bound, kept);
    reopen_row(rows, row, params.topk, least, static_cast<int>(threadIdx.x), kSettleThreads);
    __syncthreads();
  }
}

}  // namespace

cudaError_t run_recover_passes(const RecoverParams& params, int group_rows, RecoverScorer score,
                               int multiprocessors, cudaStream_t stream) {
  RecoverParams launch = params;
  for (int pass = 0;; ++pass) {
    list_lost_sm90_kernel<<<1, kListThreads, 0, stream>>>(launch, group_rows, pass == 0);
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    launch.whole = pass == kSplitPasses || params.num_keys < kLeastSplitKeys;
    status = score(launch, multiprocessors, stream);
    if (status != cudaSuccess || launch.whole) return status;
    settle_lost_sm90_kernel<<<multiprocessors, kSettleThreads, 0, stream>>>(launch, group_rows);
    status = cudaGetLastError();
    if (status != cudaSuccess) return status;
  }
}

}  // namespace dosa::select
