// SPDX-License-Identifier: Apache-2.0
// One CTA per row: reduction of records, final selection, and selection from stored scores.
#include "select/select_sm90.cuh"

#include "select/code_select_sm90.cuh"
#include "select/finish_sm90.cuh"
#include "select/optimistic_sm90.cuh"
#include "select/select_short_sm90.cuh"

namespace dosa::select {
namespace {

struct Config {
  static constexpr int kThreads = 512;  // of reduction and the last selection
  static constexpr int kCtas = 3;       // per SM: 64 KiB of records each
  static constexpr int kStreamThreads = 512;
  static constexpr int kLoads = 2;  // float4 loads of the next step in flight
  static constexpr int kChunk = kStreamThreads * kLoads * 4;  // keys per step
  static constexpr int kBuffer = 10240;                       // with K = 2048 two CTAs fit one SM
  static_assert(kBuffer - kChunk >= kMaxTopk, "a step always fits behind K kept records");
  static_assert(kChunk * sizeof(uint64_t) >= kIdBins * sizeof(uint32_t),
                "what holds K records and a step holds K records and the bins of their ids");
};

extern __shared__ __align__(16) uint8_t dynamic_shared[];

/// What the filters compare with: the proven floor or the estimate, whichever is higher.
__device__ void set_floors(const ReduceParams& params, int row, uint64_t floor, float estimate) {
  const numeric::RowState& rows = params.rows;
  const float proven = floor != 0 ? numeric::record_score(floor) : -__int_as_float(0x7f800000);
  const float threshold = fmaxf(proven, estimate);  // NaN is left out
  rows.floor_record[row] = floor;
  rows.floor_score[row] = threshold;
  rows.optimistic[row] = estimate;
  if (!params.keep_bound) rows.bound_floor[row] = numeric::bound_floor_of(threshold);
}

/// The score that a quarter of the records reach; the whole CTA calls this.
__device__ float quartile(RadixShared& shared, const uint64_t* records, int count) {
  if (count == 0) return __int_as_float(0x7fffffff);
  const int rank = count / 4 > 0 ? count / 4 : 1;
  const uint64_t bound = rank_bound<Config::kThreads>(shared, records, count, rank);
  return numeric::score_of_code(static_cast<uint32_t>(bound >> 32));
}

__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    reduce_sm90_kernel(const __grid_constant__ ReduceParams params) {
  __shared__ RadixShared shared;
  uint64_t* const local = reinterpret_cast<uint64_t*>(dynamic_shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x);
  const numeric::RowState& rows = params.rows;
  const uint32_t written = rows.counts[row];
  uint64_t floor = rows.floor_record[row];
  if (written > static_cast<uint32_t>(rows.capacity)) {
    if (thread == 0) numeric::close_row(rows, row, floor);  // it is proven, whatever was lost
    return;
  }
  int count = static_cast<int>(written);
  const bool due = count >= params.topk && (floor == 0 || count >= params.topk + params.slack);
  const bool estimates =
      params.optimism.orders != nullptr && (rows.flags[row] & numeric::kRowRecover) == 0;
  if (!due && !estimates && params.hard_floor == nullptr) return;
  uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
  for (int i = thread; i < count; i += Config::kThreads) local[i] = records[i];
  __syncthreads();
  if (params.hard_floor != nullptr) {
    const float hard = quartile(shared, local, count);
    if (thread == 0) {
      params.hard_floor[row] = params.all_hard ? -__int_as_float(0x7f800000) : hard;
    }
    __syncthreads();
  }
  if (due) {
    const uint64_t bound = rank_bound<Config::kThreads>(shared, local, count, params.topk);
    floor = keep_records<Config::kThreads>(shared, local, count, bound, records);
    count = params.topk;
    if (thread == 0) rows.counts[row] = static_cast<uint32_t>(count);
  }
  float estimate = rows.optimistic[row];
  if (estimates) {
    __syncthreads();
    for (int i = thread; due && i < count; i += Config::kThreads) local[i] = records[i];
    __syncthreads();
    estimate = fmaxf(estimate, optimistic_score<Config::kThreads>(shared, params.optimism, rows,
                                                                  row, params.topk, local, count));
    __syncthreads();
  }
  if (thread == 0 && (due || estimates)) set_floors(params, row, floor, estimate);
}

/// Records of which the next ones lie at a multiple of 16 bytes.
__host__ __device__ constexpr int even(int records) { return (records + 1) / 2 * 2; }

__device__ void report_kth(const OutputForm& form, int row, int kept, uint64_t least) {
  if (threadIdx.x != 0 || form.stats == nullptr || kept < form.topk) return;
  form.stats[row].kth_score = numeric::record_score(least);
}

__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    finish_sm90_kernel(const __grid_constant__ numeric::RowState rows,
                       const __grid_constant__ OutputForm form) {
  __shared__ RadixShared shared;
  uint64_t* const kept_records = reinterpret_cast<uint64_t*>(dynamic_shared);
  const int row = static_cast<int>(blockIdx.x);
  const int count = static_cast<int>(rows.counts[row]);
  const uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
  const int kept = count < form.topk ? count : form.topk;
  if (kept > 0) {
    const uint64_t bound = rank_bound<Config::kThreads>(shared, records, count, kept);
    const uint64_t least =
        keep_records<Config::kThreads>(shared, records, count, bound, kept_records);
    report_kth(form, row, kept, least);
  }
  const int2 visible = rows.visible[row];
  if (form.by_score) {
    write_by_score<Config::kThreads>(form, row, visible.x, kept_records, kept);
    return;
  }
  uint64_t* const scratch = kept_records + even(form.topk);
  write_by_id<Config::kThreads>(shared.warp_sums,
                                reinterpret_cast<uint32_t*>(scratch + even(form.topk)), form, row,
                                visible.x, visible.y, kept_records, kept, scratch);
}

struct StreamState {
  uint64_t* buffer;  // (kBuffer) shared memory
  uint64_t* kept;    // (K rounded up to a power of two) shared memory
  uint32_t* filled;
  uint64_t floor_record;
  float floor;
};

__device__ void load_scores(const float* line, int first, int end, float4 (&four)[Config::kLoads]) {
#pragma unroll
  for (int i = 0; i < Config::kLoads; ++i) {
    const int key = first + (i * Config::kStreamThreads + static_cast<int>(threadIdx.x)) * 4;
    if (key < end) four[i] = *reinterpret_cast<const float4*>(line + key);
  }
}

__device__ void filter_scores(const StreamState& state, int first, int2 window,
                              const float4 (&four)[Config::kLoads]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
#pragma unroll
  for (int i = 0; i < Config::kLoads; ++i) {
    const int key = first + (i * Config::kStreamThreads + thread) * 4;
    const float values[4] = {four[i].x, four[i].y, four[i].z, four[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool inside = key + j >= window.x && key + j < window.y;
      const bool may = inside && !(values[j] < state.floor);
      if (!__any_sync(0xffffffffu, may)) continue;
      const uint64_t record = numeric::make_record(values[j], key + j);
      const bool keep = may && record > state.floor_record;
      const uint32_t votes = __ballot_sync(0xffffffffu, keep);
      uint32_t base = 0;
      if (lane == 0 && votes != 0) base = atomicAdd(state.filled, __popc(votes));
      base = __shfl_sync(0xffffffffu, base, 0);
      if (keep) state.buffer[base + __popc(votes & ((1u << lane) - 1))] = record;
    }
  }
}

__device__ void shrink_buffer(RadixShared& shared, StreamState& state, int count, int topk) {
  const int rank = count < topk ? count : topk;
  const uint64_t bound = rank_bound<Config::kStreamThreads>(shared, state.buffer, count, rank);
  const uint64_t least =
      keep_records<Config::kStreamThreads>(shared, state.buffer, count, bound, state.kept);
  for (int i = static_cast<int>(threadIdx.x); i < rank; i += Config::kStreamThreads) {
    state.buffer[i] = state.kept[i];
  }
  if (rank == topk) {
    state.floor_record = least;
    state.floor = numeric::record_score(least);
  }
  if (threadIdx.x == 0) *state.filled = static_cast<uint32_t>(rank);
}

/// Begins a long row: selects among as many scores as the buffer holds codes, so that what streams
/// past afterwards meets a good floor. Returns the key to go on with; the whole CTA calls this.
__device__ int open_row(RadixShared& shared, StreamState& state, const float* line, int2 window,
                        int room, int topk) {
  constexpr int kThreads = Config::kStreamThreads;
  auto* const codes = reinterpret_cast<uint32_t*>(state.buffer);
  const int2 keys = make_int2(window.x, window.x / 4 * 4 + 2 * room / 4 * 4);
  load_codes<kThreads>(line, keys, window, codes);
  __syncthreads();
  const int count = keys.y - keys.x;
  const CodeBound bound = code_bound<kThreads>(shared, codes, count, topk);
  visit_codes<kThreads>(shared, codes, count, bound, [&](int rank, int place, uint32_t code) {
    const auto below = static_cast<uint32_t>(~(keys.x + place));
    state.kept[rank] = static_cast<uint64_t>(code) << 32 | below;
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < topk; i += kThreads) {
    state.buffer[i] = state.kept[i];
  }
  state.floor_record = static_cast<uint64_t>(bound.least) << 32;
  state.floor = numeric::score_of_code(bound.least);
  if (threadIdx.x == 0) *state.filled = static_cast<uint32_t>(topk);
  __syncthreads();
  return keys.y;
}

/// Reads a row's scores in order of ids, keeps those above the floor, and reduces when room ends.
__global__ void __launch_bounds__(Config::kStreamThreads)
    select_scores_sm90_kernel(const __grid_constant__ numeric::RowState rows, const float* scores,
                              int64_t stride, int room, const __grid_constant__ OutputForm form) {
  __shared__ RadixShared shared;
  __shared__ uint32_t filled;
  uint64_t* const buffer = reinterpret_cast<uint64_t*>(dynamic_shared);
  StreamState state{buffer, buffer + room, &filled, 0, __int_as_float(0x7fffffff)};
  const int row = static_cast<int>(blockIdx.x);
  const int2 window = rows.windows[row];
  const float* const line = scores + row * stride;
  const numeric::ForcedKeys forced(rows, row, form.topk);
  for (int i = static_cast<int>(threadIdx.x); i < forced.count; i += Config::kStreamThreads) {
    buffer[i] = forced.record(i);
  }
  if (threadIdx.x == 0) filled = static_cast<uint32_t>(forced.count);
  __syncthreads();
  float4 next[Config::kLoads] = {};
  int first = window.x / 4 * 4;
  if (forced.count == 0 && window.y - first > 2 * room) {
    first = open_row(shared, state, line, window, room, form.topk);
  }
  load_scores(line, first, window.y, next);
  for (; first < window.y; first += Config::kChunk) {
    float4 current[Config::kLoads];
#pragma unroll
    for (int i = 0; i < Config::kLoads; ++i) current[i] = next[i];
    load_scores(line, first + Config::kChunk, window.y, next);
    filter_scores(state, first, window, current);
    __syncthreads();
    const int count = static_cast<int>(filled);
    __syncthreads();
    if (count > room - Config::kChunk) {
      shrink_buffer(shared, state, count, form.topk);
      __syncthreads();
    }
  }
  const int count = static_cast<int>(filled);
  const int rank = count < form.topk ? count : form.topk;
  if (rank > 0) {
    const uint64_t bound = rank_bound<Config::kStreamThreads>(shared, buffer, count, rank);
    const uint64_t least =
        keep_records<Config::kStreamThreads>(shared, buffer, count, bound, state.kept);
    report_kth(form, row, rank, least);
  }
  const int2 visible = rows.visible[row];
  if (form.by_score) {
    write_by_score<Config::kStreamThreads>(form, row, visible.x, state.kept, rank);
    return;
  }
  write_by_id<Config::kStreamThreads>(shared.warp_sums,
                                      reinterpret_cast<uint32_t*>(buffer + even(form.topk)), form,
                                      row, visible.x, visible.y, state.kept, rank, buffer);
}

int next_power_of_two(int value) {
  int size = 1;
  while (size < value) size *= 2;
  return size;
}

/// Makes the buffer smaller where a block's shared memory is (sm_86, 89 and 120), as long as a step
/// fits behind K kept records.
cudaError_t fit_buffer(int topk, int& room) {
  constexpr int kOwn = 12 * 1024;  // the kernel's other shared memory, rounded up
  int device = 0;
  int bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  const int most = (bytes - kOwn) / static_cast<int>(sizeof(uint64_t)) - next_power_of_two(topk);
  if (most < room) room = most;
  return room < topk + Config::kChunk ? cudaErrorInvalidValue : cudaSuccess;
}

template <class Kernel>
cudaError_t allow_shared(Kernel kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

}  // namespace

cudaError_t launch_reduce_sm90(const ReduceParams& params, cudaStream_t stream) {
  if (params.rows.rows == 0) return cudaSuccess;
  const int bytes = params.rows.capacity * static_cast<int>(sizeof(uint64_t));
  const cudaError_t status = allow_shared(reduce_sm90_kernel, bytes);
  if (status != cudaSuccess) return status;
  reduce_sm90_kernel<<<params.rows.rows, Config::kThreads, bytes, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_finish_sm90(const numeric::RowState& rows, const OutputForm& form,
                               cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  const int records = form.by_score ? next_power_of_two(form.topk) : 2 * even(form.topk);
  const int bytes = records * static_cast<int>(sizeof(uint64_t)) +
                    (form.by_score ? 0 : kIdBins * static_cast<int>(sizeof(uint32_t)));
  const cudaError_t status = allow_shared(finish_sm90_kernel, bytes);
  if (status != cudaSuccess) return status;
  finish_sm90_kernel<<<rows.rows, Config::kThreads, bytes, stream>>>(rows, form);
  return cudaGetLastError();
}

cudaError_t launch_select_scores_sm90(const numeric::RowState& rows, const float* scores,
                                      int64_t stride, int64_t num_keys, const OutputForm& form,
                                      cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  bool fits = false;
  cudaError_t status = fits_select_short_sm90(num_keys, form, fits);
  if (status != cudaSuccess) return status;
  if (fits) return launch_select_short_sm90(rows, scores, stride, num_keys, form, stream);
  int room = Config::kBuffer;
  status = fit_buffer(form.topk, room);
  if (status != cudaSuccess) return status;
  const int bytes = (room + next_power_of_two(form.topk)) * static_cast<int>(sizeof(uint64_t));
  status = allow_shared(select_scores_sm90_kernel, bytes);
  if (status != cudaSuccess) return status;
  select_scores_sm90_kernel<<<rows.rows, Config::kStreamThreads, bytes, stream>>>(
      rows, scores, stride, room, form);
  return cudaGetLastError();
}

}  // namespace dosa::select
