// SPDX-License-Identifier: Apache-2.0
#include "select/report_sm90.cuh"

namespace dosa::select {
namespace {

constexpr int kThreads = 64;

__device__ int own_row() { return static_cast<int>(blockIdx.x) * kThreads + threadIdx.x; }

/// Keys at the places [begin, end) of the block's order that lie in the window.
__device__ int64_t count_keys(const gpu::Round& round, const gpu::KeyOrder& order, int2 window) {
  const int end = order.units < round.end ? order.units : round.end;
  int64_t keys = 0;
  for (int place = round.begin; place < end; ++place) {
    const int first = gpu::unit_at(order, place) * gpu::kUnitKeys;
    const int low = window.x > first ? window.x : first;
    const int high = window.y < first + gpu::kUnitKeys ? window.y : first + gpu::kUnitKeys;
    keys += high > low ? high - low : 0;
  }
  return keys;
}

__global__ void report_begin_sm90_kernel(const __grid_constant__ ReportParams params) {
  const int row = own_row();
  if (row >= params.rows.rows) return;
  const float none = -__int_as_float(0x7f800000);
  dosa_row_stats stats{};
  const int2 visible = params.rows.visible[row];
  stats.visible = visible.y - visible.x;
  stats.first_threshold = none;
  stats.last_threshold = none;
  stats.kth_score = none;
  params.stats[row] = stats;
  params.traces[row] = {0.0, 0, params.rows.counts[row]};
}

__global__ void report_round_sm90_kernel(const __grid_constant__ ReportParams params) {
  const int row = own_row();
  if (row >= params.rows.rows) return;
  const numeric::RowState& rows = params.rows;
  dosa_row_stats& stats = params.stats[row];
  RowTrace& trace = params.traces[row];
  const gpu::KeyOrder order = params.round.orders[row / gpu::kBlockRows];
  const int width = params.chosen != nullptr ? *params.chosen : params.screen_rows;
  const bool screened = params.screen_rows != 0 && params.round.begin >= order.split_from;
  const int64_t keys = count_keys(params.round, order, rows.windows[row]);
  stats.fully_scored += screened ? params.lists.counts[row / params.lists.group_rows] : keys;
  const uint32_t count = rows.counts[row];
  if (count > trace.kept) stats.records += count - trace.kept;
  if (!screened) return;
  const float threshold = rows.bound_floor[row];
  stats.screened += keys;
  const int retained = width - 2;
  stats.heads = retained < params.heads ? retained : params.heads;
  if (!(fabsf(threshold) < __int_as_float(0x7f800000))) return;
  if (!(stats.first_threshold > -__int_as_float(0x7f800000))) stats.first_threshold = threshold;
  stats.last_threshold = threshold;
  trace.threshold_sum += static_cast<double>(threshold) * static_cast<double>(keys);
}

__global__ void report_reduced_sm90_kernel(const __grid_constant__ ReportParams params) {
  const int row = own_row();
  if (row >= params.rows.rows) return;
  RowTrace& trace = params.traces[row];
  const uint64_t floor = params.rows.floor_record[row];
  if (floor != trace.floor && floor != ~uint64_t{0}) ++params.stats[row].rounds;
  trace.floor = floor;
  trace.kept = params.rows.counts[row];
}

__device__ void add(int64_t& sum, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(value));
}

__global__ void report_end_sm90_kernel(const __grid_constant__ ReportParams params,
                                       dosa_stats* sums) {
  const int row = own_row();
  if (row >= params.rows.rows) return;
  dosa_row_stats& stats = params.stats[row];
  const double screened = static_cast<double>(stats.screened);
  const double deficit = screened > 0.0 ? static_cast<double>(stats.kth_score) * screened -
                                              params.traces[row].threshold_sum
                                        : 0.0;
  const bool known = fabs(deficit) < static_cast<double>(__int_as_float(0x7f7fffff));
  if (screened > 0.0 && known) stats.mean_deficit = static_cast<float>(deficit / screened);
  if (sums == nullptr) return;
  add(sums->rows, 1);
  add(sums->visible, stats.visible);
  add(sums->screened, stats.screened);
  add(sums->fully_scored, stats.fully_scored);
  add(sums->records, stats.records);
  add(sums->rounds, stats.rounds);
  add(sums->fallback_rows, stats.fallback);
  add(sums->short_rows, stats.visible <= params.topk ? 1 : 0);
  add(sums->screened_rows, stats.screened > 0 ? 1 : 0);
  if (known) atomicAdd(&sums->mean_deficit, deficit);
}

/// Rows flagged now are scored again with every key.
__global__ void report_lost_sm90_kernel(const __grid_constant__ ReportParams params) {
  const int row = own_row();
  if (row >= params.rows.rows || (params.rows.flags[row] & numeric::kRowRecover) == 0) return;
  const int2 window = params.rows.windows[row];
  params.stats[row].fallback = 1;
  params.stats[row].fully_scored += window.y - window.x;
}

__global__ void report_sums_sm90_kernel(dosa_stats* sums, bool finished) {
  if (!finished) {
    *sums = {};
    sums->struct_size = sizeof *sums;
  } else if (sums->screened > 0) {
    sums->mean_deficit /= static_cast<double>(sums->screened);
  }
}

int ctas(const ReportParams& params) { return (params.rows.rows + kThreads - 1) / kThreads; }

}  // namespace

cudaError_t launch_report_begin_sm90(const ReportParams& params, cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  report_begin_sm90_kernel<<<ctas(params), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_report_round_sm90(const ReportParams& params, cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  report_round_sm90_kernel<<<ctas(params), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_report_reduced_sm90(const ReportParams& params, cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  report_reduced_sm90_kernel<<<ctas(params), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_report_lost_sm90(const ReportParams& params, cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  report_lost_sm90_kernel<<<ctas(params), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_report_end_sm90(const ReportParams& params, dosa_stats* sums,
                                   cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  report_end_sm90_kernel<<<ctas(params), kThreads, 0, stream>>>(params, sums);
  return cudaGetLastError();
}

cudaError_t launch_report_sums_sm90(dosa_stats* sums, bool finished, cudaStream_t stream) {
  report_sums_sm90_kernel<<<1, 1, 0, stream>>>(sums, finished);
  return cudaGetLastError();
}

}  // namespace dosa::select
