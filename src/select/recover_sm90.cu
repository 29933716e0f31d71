// SPDX-License-Identifier: Apache-2.0
// Recovery of groups of 128 / H rows: first the keys of the lost groups are spread over all CTAs,
// which suffices where a row's floor is good; rows that overflow get a better floor and once more;
// at last one CTA takes a group through all keys and reduces its records whenever the next 2,048
// keys might not fit.
#include "select/recover_sm90.cuh"

#include "gpu/ptx_sm90.cuh"
#include "refine/chain_sm90.cuh"
#include "select/radix_sm90.cuh"
#include "select/recover_passes_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {
namespace {

template <int kHeads_>
struct Config {
  static constexpr int kHeads = kHeads_;
  static constexpr int kQueries = 128 / kHeads;
  static constexpr int kUnit = 256;  // keys of a step
  static constexpr int kStages = 2;
  static constexpr int kCheck = 8;  // steps between two looks at the counts
  static constexpr int kThreads = 256;
};

template <class C>
struct SharedStorage {
  alignas(1024) uint8_t keys[C::kStages][C::kUnit * 128];  // (256, D, stage) 128B swizzle
  alignas(1024) uint8_t columns[128 * 128];                // (128, D) 128B swizzle
  alignas(16) float weights[4][refine::kClassStride];
  uint64_t kept[kMaxTopk];
  RadixShared radix;
  uint64_t keys_full[C::kStages];
  uint64_t columns_full;
  uint64_t floor_record[C::kQueries];
  int2 window[C::kQueries];
  int count[C::kQueries];
};

template <class C>
__device__ void load_group(const RecoverParams& params, SharedStorage<C>& shared, int group) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 128) {
    const int row = group * C::kQueries + thread / C::kHeads;
    const int head = thread % C::kHeads;
    const bool real = row < params.rows.rows && head < params.heads;
    shared.weights[thread % 8 / 2][thread / 8 * 2 + thread % 2] =
        real ? params.weights[row * params.weights_stride + head] : 0.0f;
  }
  if (thread < C::kQueries) {
    const int row = group * C::kQueries + thread;
    const bool open = is_lost(params.rows, row) &&
                      (params.whole || __ldcg(params.rows.counts + row) <=
                                           static_cast<uint32_t>(params.rows.capacity));
    shared.window[thread] = open ? params.rows.windows[row] : make_int2(0, 0);
    shared.floor_record[thread] = params.rows.floor_record[row];
  }
  __syncthreads();
}

/// Brings a row back to its K best records; the whole CTA calls this.
template <class C>
__device__ void shrink_row(const RecoverParams& params, SharedStorage<C>& shared, int query,
                           int row, int count) {
  uint64_t* const records = params.rows.records + static_cast<int64_t>(row) * params.rows.capacity;
  const uint64_t bound = rank_bound<C::kThreads>(shared.radix, records, count, params.topk);
  const uint64_t least =
      keep_records<C::kThreads>(shared.radix, records, count, bound, shared.kept);
  for (int i = static_cast<int>(threadIdx.x); i < params.topk; i += C::kThreads) {
    records[i] = shared.kept[i];
  }
  if (threadIdx.x == 0) {
    params.rows.counts[row] = static_cast<uint32_t>(params.topk);
    shared.floor_record[query] = least;
    __threadfence();
  }
  __syncthreads();
}

template <class C>
__device__ void score_keys(const RecoverParams& params, SharedStorage<C>& shared,
                           const uint8_t* tile, int group, int first_key) {
  using Share = refine::LaneShare<C::kQueries>;
  const int c = static_cast<int>(threadIdx.x) & 3;
  float products[64];
  const uint64_t keys = gpu::matrix_descriptor(tile);
  const uint64_t columns = gpu::matrix_descriptor(shared.columns);
  gpu::pin_registers(products);
  gpu::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    gpu::wgmma_k32(products, keys + step * 2, columns + step * 2, step != 0);
  }
  gpu::wgmma_commit();
  gpu::wgmma_wait<0>();
  gpu::pin_registers(products);
  float scales[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first_key + 8 * half;
    scales[half] = key < params.num_keys ? params.k_scale[key] : 0.0f;
  }
  float weights[32];
  refine::read_class_weights(shared.weights[c], weights);
  float scores[C::kQueries][2];
  refine::ScoreChain<C::kHeads>::scores(products, weights, scales, scores);
  const int query = Share::query(c);
  const int2 window = shared.window[query];
  uint64_t records[2];
  bool keep[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float value = i < Share::kValues ? Share::pick(scores, c, i) : 0.0f;
    const int key = first_key + 8 * Share::half(c, i);
    records[i] = numeric::make_record(value, key);
    keep[i] = i < Share::kValues && Share::owns(c) && key >= window.x && key < window.y &&
              records[i] > shared.floor_record[query];
  }
  numeric::PendingRecords<Share::kClasses> pending;
  pending.begin(params.rows, group * C::kQueries + query, keep, records);
  pending.finish(params.rows);
}

/// Phases of the barriers carry over from group to group.
struct Phases {
  uint32_t steps = 0;
  uint32_t groups = 0;
};

template <class C>
__device__ void issue_keys(const RecoverParams& params, SharedStorage<C>& shared, uint32_t step,
                           int first_key) {
  const uint32_t stage = step % C::kStages;
  gpu::barrier_arrive_expect(&shared.keys_full[stage], C::kUnit * 128);
  gpu::tensor_load(shared.keys[stage], &params.keys, 0, first_key, &shared.keys_full[stage]);
}

/// Scores the keys of [low, high) that a lost row of the group sees.
template <class C>
__device__ void recover_group(const RecoverParams& params, SharedStorage<C>& shared, int group,
                              int low, int high, Phases& phases) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane_row = thread % 128 / 32 * 16 + (thread & 31) / 4;
  load_group<C>(params, shared, group);
  int first_seen = high;
  int last_seen = low;
  for (int query = 0; query < C::kQueries; ++query) {
    const int2 window = shared.window[query];
    if (window.x >= window.y) continue;
    first_seen = window.x < first_seen ? window.x : first_seen;
    last_seen = window.y > last_seen ? window.y : last_seen;
  }
  low = first_seen > low ? first_seen : low;
  high = last_seen < high ? last_seen : high;
  if (low >= high) return;
  low = low / C::kUnit * C::kUnit;
  if (thread == 0) {
    gpu::barrier_arrive_expect(&shared.columns_full, 128 * 128);
    gpu::tensor_load(shared.columns, &params.queries, 0, group * 128, &shared.columns_full);
    issue_keys<C>(params, shared, phases.steps, low);
  }
  gpu::barrier_wait(&shared.columns_full, phases.groups & 1);
  ++phases.groups;
  for (int first = low; first < high; first += C::kUnit, ++phases.steps) {
    if (thread == 0 && first + C::kUnit < high) {
      issue_keys<C>(params, shared, phases.steps + 1, first + C::kUnit);
    }
    const uint32_t stage = phases.steps % C::kStages;
    gpu::barrier_wait(&shared.keys_full[stage], phases.steps / C::kStages & 1);
    for (int sub = 0; sub < C::kUnit / 128; ++sub) {
      const int tile_row = (sub * 2 + thread / 128) * 64;
      score_keys<C>(params, shared, shared.keys[stage] + tile_row * 128, group,
                    first + tile_row + lane_row);
    }
    __syncthreads();  // the stage may be filled again
    if (!params.whole) continue;
    const bool last = first + C::kUnit >= high;
    if (!last && (first - low) / C::kUnit % C::kCheck != C::kCheck - 1) continue;
    __threadfence();
    __syncthreads();
    if (thread < C::kQueries) {
      const int row = group * C::kQueries + thread;
      shared.count[thread] =
          shared.window[thread].y > 0 ? static_cast<int>(__ldcg(params.rows.counts + row)) : 0;
    }
    __syncthreads();
    for (int query = 0; query < C::kQueries; ++query) {
      const int count = shared.count[query];
      if (count > params.rows.capacity - C::kUnit * C::kCheck) {
        shrink_row<C>(params, shared, query, group * C::kQueries + query, count);
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    recover_sm90_e4m3_kernel(const __grid_constant__ RecoverParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<SharedStorage<C>*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) gpu::barrier_init(&shared.keys_full[stage], 1);
    gpu::barrier_init(&shared.columns_full, 1);
    gpu::fence_barrier_init();
  }
  __syncthreads();
  constexpr int kSlice = C::kUnit * C::kCheck;
  RecoverShare share(params, kSlice);
  Phases phases;
  while (share.next(params, kSlice)) {
    recover_group<C>(params, shared, share.group, share.low, share.high, phases);
    __syncthreads();
  }
}

template <int kHeads>
cudaError_t score_heads(const RecoverParams& params, int multiprocessors, cudaStream_t stream) {
  using C = Config<kHeads>;
  constexpr int kBytes = sizeof(SharedStorage<C>);
  const auto kernel = recover_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors, C::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <int kHeads>
cudaError_t launch_heads(const RecoverParams& params, int multiprocessors, cudaStream_t stream) {
  return run_recover_passes(params, Config<kHeads>::kQueries, score_heads<kHeads>, multiprocessors,
                            stream);
}

}  // namespace

cudaError_t launch_recover_sm90(const RecoverParams& params, int padded_heads, int multiprocessors,
                                cudaStream_t stream) {
  switch (padded_heads) {
    case 32:
      return launch_heads<32>(params, multiprocessors, stream);
    case 64:
      return launch_heads<64>(params, multiprocessors, stream);
    case 128:
      return launch_heads<128>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::select
