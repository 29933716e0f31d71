// SPDX-License-Identifier: Apache-2.0
// One CTA per row for its answer, and one per request for its state. Records come from all segments
// of the request; usually they all fit into shared memory, otherwise they stream past a buffer of
// which the best are kept.
#include "select/paged_select_sm90.cuh"

#include "gpu/ptx_paged_sm90.cuh"
#include "select/id_sort_sm90.cuh"
#include "select/paged_form_sm90.cuh"
#include "select/paged_schedule_sm90.cuh"

namespace dosa::select {
namespace {

using numeric::PagedStep;

template <int kThreads_>
struct Config {
  static constexpr int kThreads = kThreads_;
  static constexpr int kLoads = 4;  // records of a thread in flight
  static constexpr int kChunk = kThreads * kLoads;
  static constexpr int kBuffer = 10240;  // with K = 2048 two CTAs fit one multiprocessor
  static constexpr int kMostKept = kMaxTopk + kMaxTopk / 2;
  static_assert(kBuffer - kChunk >= kMostKept, "a step fits behind the kept ones");
  static_assert((kBuffer - kMostKept) * 2 >= kIdBins, "the buffer holds winners and bins of ids");
};

struct SharedStorage {
  RadixShared radix;
  uint32_t warp_sums[32];
  uint32_t first[kMostScanCtas + 1];  // records before each segment
  uint32_t filled;                    // records in the pool's buffer
  uint32_t taken;                     // records in its `sorted`
};

extern __shared__ __align__(16) uint8_t dynamic_shared[];

/// The best records so far; all of them lie in shared memory.
struct Pool {
  uint64_t* buffer;  // (kBuffer)
  uint64_t* sorted;  // (`most` rounded up to a power of two)
  uint64_t floor;    // only records above can be among the best
  int most;          // how many are wanted
};

/// Lays the segments of a row end to end; returns the number of their records.
template <class C>
__device__ int count_records(const PagedSelectParams& params, SharedStorage& shared, int b, int t,
                             int2 ctas) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const int segments = ctas.y - ctas.x + 1;
  uint32_t own = 0;
  if (thread < segments) {
    const int64_t number = static_cast<int64_t>(b) + ctas.x + thread;
    own = params.found.counts[number * params.step.next_n + t];
  }
  uint32_t upto = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, upto, distance);
    if (lane >= distance) upto += other;
  }
  if (lane == 31) shared.warp_sums[thread / 32] = upto;
  __syncthreads();
  for (int warp = 0; warp < thread / 32; ++warp) upto += shared.warp_sums[warp];
  if (thread < segments) shared.first[thread + 1] = upto;
  if (thread == 0) {
    shared.first[0] = 0;
    shared.filled = 0;
    shared.taken = 0;
  }
  __syncthreads();
  return static_cast<int>(shared.first[segments]);
}

/// Record `i` of a row that has so many segments.
__device__ __forceinline__ uint64_t load_record(const PagedSelectParams& params,
                                                const SharedStorage& shared, int b, int t,
                                                int2 ctas, uint32_t i) {
  int low = 0;
  int high = ctas.y - ctas.x + 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (shared.first[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t number = static_cast<int64_t>(b) + ctas.x + low;
  const uint64_t* const records =
      params.found.records + (number * params.step.next_n + t) * params.found.capacity;
  return records[i - shared.first[low]];
}

/// Puts a record behind the `filled` ones of a list; the whole warp calls this.
__device__ __forceinline__ void push(uint32_t& filled, uint64_t* list, bool keep, uint64_t record) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t votes = __ballot_sync(0xffffffffu, keep);
  if (votes == 0) return;
  uint32_t base = 0;
  if (lane == 0) base = atomicAdd(&filled, __popc(votes));
  base = __shfl_sync(0xffffffffu, base, 0);
  if (keep) list[base + __popc(votes & ((1u << lane) - 1))] = record;
}

/// Makes room for another step where there is none; the whole CTA calls this.
template <class C>
__device__ void make_room(SharedStorage& shared, Pool& pool) {
  __syncthreads();
  const int count = static_cast<int>(shared.filled);
  __syncthreads();
  if (count <= C::kBuffer - C::kChunk) return;
  const uint64_t bound = rank_bound<C::kThreads>(shared.radix, pool.buffer, count, pool.most);
  pool.floor = keep_records<C::kThreads>(shared.radix, pool.buffer, count, bound, pool.sorted);
  for (int i = static_cast<int>(threadIdx.x); i < pool.most; i += C::kThreads) {
    pool.buffer[i] = pool.sorted[i];
  }
  if (threadIdx.x == 0) shared.filled = static_cast<uint32_t>(pool.most);
  __syncthreads();
}

/// All records of a row stream past the pool's buffer; the best move to `sorted`.
/// Returns how many.
template <class C>
__device__ int select_streaming(const PagedSelectParams& params, SharedStorage& shared, Pool& pool,
                                int b, int t, int2 ctas, int total) {
  for (int start = 0; start < total; start += C::kChunk) {
    uint64_t records[C::kLoads];
#pragma unroll
    for (int i = 0; i < C::kLoads; ++i) {
      const int at = start + i * C::kThreads + static_cast<int>(threadIdx.x);
      records[i] = at < total ? load_record(params, shared, b, t, ctas, at) : 0;
    }
#pragma unroll
    for (int i = 0; i < C::kLoads; ++i) {
      push(shared.filled, pool.buffer, records[i] > pool.floor, records[i]);
    }
    make_room<C>(shared, pool);
  }
  __syncthreads();
  const int count = static_cast<int>(shared.filled);
  const int kept = count < pool.most ? count : pool.most;
  if (kept == 0) return 0;
  const uint64_t bound = rank_bound<C::kThreads>(shared.radix, pool.buffer, count, kept);
  keep_records<C::kThreads>(shared.radix, pool.buffer, count, bound, pool.sorted);
  return kept;
}

/// Where the scan's bins put the last winner.
struct Cut {
  int bin;     // those in higher bins win; -1: all do
  int needed;  // how many of this bin
  int in_bin;
};

/// Finds the cut for the best `most` records by the counts in the histogram; the whole CTA calls
/// this.
template <class C>
__device__ Cut find_cut(SharedStorage& shared, int most) {
  if (threadIdx.x == 0) shared.radix.bin = kBins;
  __syncthreads();
  find_bin<C::kThreads>(shared.radix, static_cast<uint32_t>(most));
  if (shared.radix.bin == kBins) return {-1, 0, 0};
  return {static_cast<int>(shared.radix.bin), static_cast<int>(shared.radix.needed),
          static_cast<int>(shared.radix.in_bin)};
}

/// Of the `count` distinct candidates in the buffer the best `needed` follow the winners.
template <class C>
__device__ void settle_bin(SharedStorage& shared, const Pool& pool, int count, int needed) {
  constexpr int kFew = 256;
  const int thread = static_cast<int>(threadIdx.x);
  if (count <= kFew || needed >= count) {
    for (int i = thread; i < (count + 31) / 32 * 32; i += C::kThreads) {
      const uint64_t record = i < count ? pool.buffer[i] : 0;
      int better = 0;
      if (needed < count) {
        for (int j = 0; j < count; ++j) better += pool.buffer[j] > record ? 1 : 0;
      }
      push(shared.taken, pool.sorted, i < count && better < needed, record);
    }
  } else {
    const int before = static_cast<int>(shared.taken);
    const uint64_t bound = rank_bound<C::kThreads>(shared.radix, pool.buffer, count, needed);
    keep_records<C::kThreads>(shared.radix, pool.buffer, count, bound, pool.sorted + before);
    if (thread == 0) shared.taken = static_cast<uint32_t>(before + needed);
  }
  __syncthreads();
}

/// The same with the scan's bins: winners in higher bins go to `sorted` at once, and only those of
/// the last bin are ranked. Returns how many; -1 where that bin does not fit into the buffer.
/// Guarantee: every winner was counted in its bin, and a record that was dropped later lies in the
///           last winner's bin or below, for K better ones were counted before it
template <class C>
__device__ int select_binned(const PagedSelectParams& params, SharedStorage& shared,
                             const Pool& pool, int b, int t, int2 ctas, int total) {
  const int64_t row = static_cast<int64_t>(b) * params.step.next_n + t;
  const Cut cut = find_cut<C>(shared, pool.most);
  if (cut.in_bin > C::kBuffer || (cut.bin < 0 && total > pool.most)) return -1;
  const numeric::ScoreBins bins = params.witnesses.floors[row].bins();
  for (int start = 0; start < total; start += C::kChunk) {
    uint64_t records[C::kLoads];
#pragma unroll
    for (int i = 0; i < C::kLoads; ++i) {
      const int at = start + i * C::kThreads + static_cast<int>(threadIdx.x);
      records[i] = at < total ? load_record(params, shared, b, t, ctas, at) : 0;
    }
#pragma unroll
    for (int i = 0; i < C::kLoads; ++i) {
      const int bin = records[i] != 0 ? numeric::bin_of(bins, numeric::record_score(records[i]),
                                                        numeric::kFloorBins - 1)
                                      : -2;
      push(shared.taken, pool.sorted, bin > cut.bin, records[i]);
      push(shared.filled, pool.buffer, bin == cut.bin, records[i]);
    }
  }
  __syncthreads();
  const int count = static_cast<int>(shared.filled);
  const int needed = cut.needed < count ? cut.needed : count;
  __syncthreads();
  if (needed > 0) settle_bin<C>(shared, pool, count, needed);
  return static_cast<int>(shared.taken);
}

/// The best records of a row, in any order, to the pool's `sorted`; returns how many.
template <class C>
__device__ int select_records(const PagedSelectParams& params, SharedStorage& shared, Pool& pool,
                              int b, int t, int2 ctas) {
  constexpr int kEach = numeric::kFloorBins / C::kThreads;
  static_assert(kEach * C::kThreads == numeric::kFloorBins, "threads share the bins evenly");
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t counted[kEach] = {};
  if (params.witnesses.bins != nullptr) {
    const int64_t row = static_cast<int64_t>(b) * params.step.next_n + t;
    const uint32_t* const bins = params.witnesses.bins + row * numeric::kFloorBins;
#pragma unroll
    for (int i = 0; i < kEach; ++i) counted[i] = bins[i * C::kThreads + thread];
  }
  const int total = count_records<C>(params, shared, b, t, ctas);
  if (params.witnesses.bins != nullptr) {
    for (int i = thread; i < kBins; i += C::kThreads) shared.radix.histogram[i] = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) shared.radix.histogram[i * C::kThreads + thread] = counted[i];
    const int kept = select_binned<C>(params, shared, pool, b, t, ctas, total);
    if (kept >= 0) return kept;
  }
  return select_streaming<C>(params, shared, pool, b, t, ctas, total);
}

/// The end of the pool's buffer, which is free once its records have been selected.
template <class C>
__device__ __forceinline__ uint32_t* id_bins(const Pool& pool) {
  return reinterpret_cast<uint32_t*>(pool.buffer + C::kMostKept);
}

template <class C>
__device__ void answer_row(const PagedSelectParams& params, SharedStorage& shared, Pool& pool,
                           int row) {
  const PagedStep& step = params.step;
  const int b = row / step.next_n;
  const int t = row % step.next_n;
  const int2 ctas = params.found.ctas[b];  // of no meaning where nothing was scanned
  const int length = numeric::row_length(step, b, t);
  if (numeric::is_short(step, length)) {
    write_short_row(params.form, b, row, length, static_cast<int>(threadIdx.x), C::kThreads);
    return;
  }
  const OutputForm form = form_of(params.form, b);
  const int kept = select_records<C>(params, shared, pool, b, t, ctas);
  if (form.by_score) {
    write_by_score<C::kThreads>(form, row, 0, pool.sorted, kept);
    return;
  }
  write_by_id<C::kThreads>(shared.warp_sums, id_bins<C>(pool), form, row, 0, length, pool.sorted,
                           kept, pool.buffer);
}

template <class C>
__device__ void write_state(const PagedSelectParams& params, SharedStorage& shared, Pool& pool,
                            int b) {
  const PagedStep& step = params.step;
  uint32_t* const state = state_of(params.states, b);
  if (state == nullptr) return;
  int t = step.next_n - 1;
  while (t >= 0 && numeric::row_length(step, b, t) == 0) --t;
  const int length = t >= 0 ? numeric::row_length(step, b, t) : 0;
  const int thread = static_cast<int>(threadIdx.x);
  if (numeric::is_short(step, length)) {
    write_short_state(state, length, thread, C::kThreads);
    return;
  }
  const int kept = select_records<C>(params, shared, pool, b, t, params.found.ctas[b]);
  visit_by_id<C::kThreads>(shared.warp_sums, id_bins<C>(pool), pool.sorted, kept, length,
                           pool.buffer, [&](int rank, uint64_t record) {
                             state[1 + rank] = static_cast<uint32_t>(numeric::record_key(record));
                           });
  if (thread == 0) state[0] = static_cast<uint32_t>(kept);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads)
    paged_select_sm90_kernel(const __grid_constant__ PagedSelectParams params) {
  __shared__ SharedStorage shared;
  uint64_t* const buffer = reinterpret_cast<uint64_t*>(dynamic_shared);
  Pool pool{buffer, buffer + C::kBuffer, 0, params.step.topk};
  gpu::grid_dependency_wait();
  const int rows = params.step.batch * params.step.next_n;
  const int item = static_cast<int>(blockIdx.x);
  if (item < rows) {
    answer_row<C>(params, shared, pool, item);
  } else {
    pool.most = witness_capacity(params.step.topk);
    write_state<C>(params, shared, pool, item - rows);
  }
}

template <class C>
cudaError_t launch_config(const PagedSelectParams& params, cudaStream_t stream) {
  const bool states = params.states.memory != nullptr;
  int sorted = 1;
  while (sorted < (states ? witness_capacity(params.step.topk) : params.step.topk)) sorted *= 2;
  const int bytes = (C::kBuffer + sorted) * static_cast<int>(sizeof(uint64_t));
  const auto kernel = paged_select_sm90_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(params.step.batch * (params.step.next_n + (states ? 1 : 0)));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

cudaError_t launch_paged_select_sm90(const PagedSelectParams& params, cudaStream_t stream) {
  // With few rows one wants the latency of many threads, with many rows many CTAs.
  constexpr int kFewRows = 264;
  return params.step.batch * params.step.next_n <= kFewRows
             ? launch_config<Config<1024>>(params, stream)
             : launch_config<Config<256>>(params, stream);
}

}  // namespace dosa::select
