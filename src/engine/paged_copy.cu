// SPDX-License-Identifier: Apache-2.0
// Keys into pages, quantised, and out of pages. A warp moves one key, four coordinates a lane.
#include <cuda_fp8.h>

#include <algorithm>
#include <bit>

#include "engine/paged_run.cuh"
#include "gpu/check.hpp"

namespace dosa::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMostCtas = 4096;
constexpr int kHeadDim = 128;
// The largest e4m3fn value, and the least amax: keys of zeros get a normal scale, too.
constexpr float kLargestCode = 448.0f;
constexpr float kLeastAmax = 1e-4f;

struct Cache {
  uint8_t* pages;
  int64_t page_stride;
  int64_t num_pages;
  int page_size;
};

Cache cache_of(const dosa_page_cache& cache) {
  return {cache.pages, cache.page_stride, cache.num_pages, cache.page_size};
}

__device__ __forceinline__ uint8_t* key_at(const Cache& cache, int64_t page, int place) {
  return cache.pages + page * cache.page_stride + place * kHeadDim;
}

__device__ __forceinline__ float* scale_at(const Cache& cache, int64_t page, int place) {
  return reinterpret_cast<float*>(cache.pages + page * cache.page_stride +
                                  cache.page_size * kHeadDim) +
         place;
}

struct GatherParams {
  Cache cache;
  int64_t batch;
  const int32_t* table;
  int64_t table_stride;
  int64_t table_blocks;
  const int32_t* first;  // (batch + 1) key of each request's first token
  int64_t num_keys;
  uint8_t* k;
  int64_t k_stride;
  float* k_scale;
};

/// The request whose keys hold number `key`.
__device__ int64_t request_of(const GatherParams& params, int64_t key) {
  int64_t low = 0;
  int64_t high = params.batch;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (params.first[middle] <= key) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    paged_gather_sm90_kernel(const __grid_constant__ GatherParams params) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t total = min(static_cast<int64_t>(params.first[params.batch]), params.num_keys);
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t key = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; key < total;
       key += warps) {
    const int64_t b = request_of(params, key);
    const int64_t token = key - params.first[b];
    const int64_t block = token / params.cache.page_size;
    const int place = static_cast<int>(token % params.cache.page_size);
    const int64_t page = block >= 0 && block < params.table_blocks
                             ? params.table[b * params.table_stride + block]
                             : -1;
    if (page < 0 || page >= params.cache.num_pages) continue;
    const uint8_t* const source = key_at(params.cache, page, place);
    uint8_t* const target = params.k + key * params.k_stride;
    if (reinterpret_cast<uintptr_t>(target) % 4 == 0) {
      reinterpret_cast<uint32_t*>(target)[lane] = reinterpret_cast<const uint32_t*>(source)[lane];
    } else {
      for (int i = lane; i < kHeadDim; i += 32) target[i] = source[i];
    }
    if (lane == 0) params.k_scale[key] = *scale_at(params.cache, page, place);
  }
}

struct InsertParams {
  Cache cache;
  int64_t num_tokens;
  const uint16_t* k;
  int64_t k_stride;
  const int64_t* slots;
  bool power_of_two;
};

__device__ __forceinline__ float from_bf16(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

/// The e4m3fn code nearest to x / scale, ties to even, saturating. A NaN keeps its sign, and Inf /
/// Inf is negative as it is on x86: the host's bytes.
__device__ __forceinline__ uint32_t to_e4m3(float x, float scale) {
  if (x != x) return (__float_as_uint(x) >> 24 & 0x80) | 0x7f;
  const float quotient = __fdiv_rn(x, scale);
  if (quotient != quotient) return 0xff;
  return __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
}

__device__ void insert_key(const InsertParams& params, int64_t token, int64_t slot) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint16_t* const source = params.k + token * params.k_stride + lane * 4;
  float x[4];
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = from_bf16(source[i]);
    largest = fmaxf(largest, fabsf(x[i]));  // a NaN is not larger
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  float scale = __fdiv_rn(fmaxf(largest, kLeastAmax), kLargestCode);
  if (params.power_of_two) {
    constexpr uint32_t kMantissa = 0x7fffff;
    scale = __uint_as_float((__float_as_uint(scale) + kMantissa) & ~kMantissa);
  }
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) codes |= to_e4m3(x[i], scale) << (8 * i);
  const int64_t page = slot / params.cache.page_size;
  const int place = static_cast<int>(slot % params.cache.page_size);
  reinterpret_cast<uint32_t*>(key_at(params.cache, page, place))[lane] = codes;
  if (lane == 0) *scale_at(params.cache, page, place) = scale;
}

__global__ void __launch_bounds__(kThreads)
    paged_insert_sm90_kernel(const __grid_constant__ InsertParams params) {
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  const int64_t most = params.cache.num_pages * params.cache.page_size;
  for (int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       token < params.num_tokens; token += warps) {
    const int64_t slot = params.slots[token];
    if (slot >= 0 && slot < most) insert_key(params, token, slot);
  }
}

unsigned ctas_for(int64_t keys) {
  return static_cast<unsigned>(std::min<int64_t>((keys + kWarps - 1) / kWarps, kMostCtas));
}

}  // namespace

void cuda_paged_gather(const dosa_paged_gather_problem& problem, cudaStream_t stream) {
  if (problem.batch == 0 || problem.num_keys == 0) return;
  GatherParams params{};
  params.cache = cache_of(*problem.cache);
  params.batch = problem.batch;
  params.table = problem.block_table;
  params.table_stride = problem.block_table_stride;
  params.table_blocks = problem.block_table_blocks;
  params.first = problem.cu_seq_lens;
  params.num_keys = problem.num_keys;
  params.k = problem.k;
  params.k_stride = problem.k_stride;
  params.k_scale = problem.k_scale;
  paged_gather_sm90_kernel<<<ctas_for(problem.num_keys), kThreads, 0, stream>>>(params);
  DOSA_CUDA(cudaGetLastError());
}

void cuda_paged_insert(const dosa_paged_insert_problem& problem, cudaStream_t stream) {
  if (problem.num_tokens == 0) return;
  InsertParams params{};
  params.cache = cache_of(*problem.cache);
  params.num_tokens = problem.num_tokens;
  params.k = problem.k;
  params.k_stride = problem.k_stride;
  params.slots = problem.slot_mapping;
  params.power_of_two = problem.scale_format == DOSA_SCALE_UE8M0;
  paged_insert_sm90_kernel<<<ctas_for(problem.num_tokens), kThreads, 0, stream>>>(params);
  DOSA_CUDA(cudaGetLastError());
}

}  // namespace dosa::engine
