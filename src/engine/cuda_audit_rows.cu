// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_audit_rows.cuh"

#include "numeric/order_sm90.cuh"

namespace dosa::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

/// The least value and the lowest key where it was seen.
struct Extreme {
  double value;
  int key;

  __device__ void add(double other, int at) {
    if (other < value || (other == value && at < key)) {
      value = other;
      key = at;
    }
  }
};

struct Shared {
  unsigned long long worst;  // of the answer's records
  int wrong;
  int sums[5];
  Extreme margin[kWarps];
  Extreme used[kWarps];
};

__device__ int clamp_to(int value, int most) { return min(max(value, 0), most); }

/// The part of a window whose keys are ranked by their scores.
__device__ int2 ranked_of(const AuditRows& params, int2 window) {
  const int begin = window.x + clamp_to(params.forced_first, window.y - window.x);
  return make_int2(begin, window.y - clamp_to(params.forced_last, window.y - begin));
}

/// What a key ranks by.
__device__ float rank_score(int2 ranked, const float* scores, int key) {
  const bool forced = key < ranked.x || key >= ranked.y;
  return forced ? __int_as_float(0x7f800000) : scores[key];
}

__device__ int2 window_of(const AuditRows& params, int row) {
  const int begin = params.k_start == nullptr ? 0 : clamp_to(params.k_start[row], params.num_keys);
  const int end =
      params.k_end == nullptr ? params.num_keys : clamp_to(params.k_end[row], params.num_keys);
  return make_int2(begin, max(begin, end));
}

/// The same bits, but for the sign of zero and what a NaN carries: neither is part of the order.
__device__ bool same_score(float a, float b) {
  return numeric::order_code(a) == numeric::order_code(b);
}

/// The answer's form, and its last record: ids ascend inside the window, scores are the keys' own.
__device__ void read_answer(const AuditRows& params, int row, int2 window, int2 ranked,
                            Shared& shared) {
  const int32_t* const ids = params.ids + static_cast<int64_t>(row) * params.topk;
  const float* const id_scores = params.id_scores + static_cast<int64_t>(row) * params.topk;
  const float* const scores = params.scores + row * params.scores_stride;
  const int count = min(params.topk, window.y - window.x);
  for (int i = static_cast<int>(threadIdx.x); i < params.topk; i += kThreads) {
    const int id = ids[i];
    if (i >= count) {
      if (id != -1) shared.wrong = 1;
      continue;
    }
    const bool inside = id >= window.x && id < window.y;
    if (!inside || (i > 0 && ids[i - 1] >= id)) shared.wrong = 1;
    if (!inside) continue;
    const float score = rank_score(ranked, scores, id);
    if (!same_score(id_scores[i], score)) shared.wrong = 1;
    atomicMin(&shared.worst, numeric::make_record(score, id));
  }
}

/// Lowest of a warp, in lane 0.
__device__ Extreme warp_least(Extreme own) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const double value = __shfl_down_sync(0xffffffffu, own.value, step);
    const int key = __shfl_down_sync(0xffffffffu, own.key, step);
    own.add(value, key);
  }
  return own;
}

__global__ void __launch_bounds__(kThreads)
    audit_rows_kernel(const __grid_constant__ AuditRows params, AuditPart* parts) {
  __shared__ Shared shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int2 window = window_of(params, row);
  const int2 ranked = ranked_of(params, window);
  if (thread == 0) {
    shared.worst = ~0ull;
    shared.wrong = 0;
    for (int& sum : shared.sums) sum = 0;
  }
  __syncthreads();
  if (params.ids != nullptr) read_answer(params, row, window, ranked, shared);
  __syncthreads();
  const uint64_t worst = shared.worst;
  const bool full = params.ids != nullptr && window.y - window.x >= params.topk;
  const float threshold =
      full ? numeric::bound_floor_of(numeric::record_score(worst)) : -__int_as_float(0x7f800000);

  const int64_t length = window.y - window.x;
  const int first = window.x + static_cast<int>(length * blockIdx.x / gridDim.x);
  const int last = window.x + static_cast<int>(length * (blockIdx.x + 1) / gridDim.x);
  const KeyBound* const bounds = params.bounds + row * params.bounds_stride;
  const float* const scores = params.scores + row * params.scores_stride;
  const double infinity = __longlong_as_double(0x7ff0000000000000ll);
  Extreme margin{infinity, INT32_MAX};
  Extreme used{infinity, INT32_MAX};  // of the share that is left: 1 - used
  int sums[5] = {};
  for (int key = first + thread; key < last; key += kThreads) {
    const float score = rank_score(ranked, scores, key);
    ++sums[0];
    if (numeric::make_record(score, key) >= worst) ++sums[4];
    if (key < ranked.x || key >= ranked.y) continue;
    const KeyBound own = bounds[key];
    if (!(own.bound < __int_as_float(0x7f800000))) continue;  // NaN and +Inf claim nothing
    ++sums[1];
    const float own_threshold = numeric::bound_floor_of(score);
    if (own.bound < threshold) ++sums[2];
    if (own.bound < own_threshold) ++sums[3];
    margin.add(static_cast<double>(own.bound) - static_cast<double>(own_threshold), key);
    if (own.allowance > 0.0f) {
      const double slack = static_cast<double>(own.bound) - static_cast<double>(score);
      used.add(slack / static_cast<double>(own.allowance), key);
    }
  }
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    if (sums[i] != 0) atomicAdd(shared.sums + i, sums[i]);
  }
  margin = warp_least(margin);
  used = warp_least(used);
  if (thread % 32 == 0) {
    shared.margin[thread / 32] = margin;
    shared.used[thread / 32] = used;
  }
  __syncthreads();
  if (thread != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) {
    margin.add(shared.margin[warp].value, shared.margin[warp].key);
    used.add(shared.used[warp].value, shared.used[warp].key);
  }
  AuditPart part{};
  part.visible = shared.sums[0];
  part.bounded = shared.sums[1];
  part.rejected = shared.sums[2];
  part.violations = shared.sums[3];
  part.better = shared.sums[4];
  part.wrong = shared.wrong;
  part.margin = margin.value;
  part.margin_key = margin.key == INT32_MAX ? -1 : margin.key;
  part.used_key = used.key == INT32_MAX ? -1 : used.key;
  part.used = static_cast<float>(1.0 - used.value);
  if (part.margin_key >= 0) {
    part.bound = bounds[margin.key].bound;
    part.score = scores[margin.key];
  }
  parts[static_cast<int64_t>(row) * gridDim.x + blockIdx.x] = part;
}

}  // namespace

cudaError_t launch_audit_rows(const AuditRows& params, AuditPart* parts, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  const dim3 grid(kAuditParts, static_cast<unsigned>(params.rows));
  audit_rows_kernel<<<grid, kThreads, 0, stream>>>(params, parts);
  return cudaGetLastError();
}

}  // namespace dosa::engine
