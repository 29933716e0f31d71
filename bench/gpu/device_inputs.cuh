// SPDX-License-Identifier: Apache-2.0
// Inputs of real size for measurements on the device, made there.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "dosa/dosa_cuda.h"
#include "gpu/check.hpp"

namespace dosa::bench {

/// Tensors of a problem in device memory. Never freed: a measurement ends with its process.
struct DeviceProblem {
  dosa_problem problem{};
  uint8_t* q = nullptr;
  uint8_t* k = nullptr;
  float* k_scale = nullptr;
  float* weights = nullptr;
  int32_t* k_start = nullptr;
  int32_t* k_end = nullptr;

  DeviceProblem(int64_t queries, int64_t keys, int heads, int topk) {
    constexpr int kDim = 128;
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&q), queries * heads * kDim));
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&k), keys * kDim));
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&k_scale), keys * sizeof(float) + 16));
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&weights), queries * heads * sizeof(float)));
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&k_start), queries * sizeof(int32_t)));
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&k_end), queries * sizeof(int32_t)));
    problem.struct_size = sizeof problem;
    problem.num_queries = queries;
    problem.num_keys = keys;
    problem.num_heads = heads;
    problem.head_dim = kDim;
    problem.topk = topk;
    problem.q = q;
    problem.q_stride = static_cast<int64_t>(heads) * kDim;
    problem.k = k;
    problem.k_stride = kDim;
    problem.k_scale = k_scale;
    problem.weights = weights;
    problem.weights_stride = heads;
    problem.k_start = k_start;
    problem.k_end = k_end;
    // The causal last chunk: row t sees keys [0, N - Q + t + 1).
    std::vector<int32_t> start(queries, 0);
    std::vector<int32_t> end(queries);
    for (int64_t row = 0; row < queries; ++row) {
      end[row] = static_cast<int32_t>(keys - queries + row + 1);
    }
    DOSA_CUDA(cudaMemcpy(k_start, start.data(), queries * 4, cudaMemcpyHostToDevice));
    DOSA_CUDA(cudaMemcpy(k_end, end.data(), queries * 4, cudaMemcpyHostToDevice));
  }
};

constexpr int kFillThreads = 256;

inline __device__ uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

inline __device__ float normal(uint64_t counter) {
  const uint64_t bits = mix(counter);
  const float u = (static_cast<float>(static_cast<uint32_t>(bits)) + 1.0f) * 0x1p-32f;
  const float v = static_cast<float>(static_cast<uint32_t>(bits >> 32)) * 0x1p-31f;
  return sqrtf(-2.0f * logf(u)) * cospif(v);
}

static __global__ void fill_codes(uint8_t* codes, int64_t count, float size, uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at < count) {
    codes[at] = __nv_cvt_float_to_fp8(size * normal(seed + at), __NV_SATFINITE, __NV_E4M3);
  }
}

static __global__ void fill_scales(float* scales, int64_t count, uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at < count) scales[at] = 0.01f * expf(0.1f * normal(seed + at));
}

static __global__ void fill_weights(float* weights, int64_t count, int heads, int positive,
                                    uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at >= count) return;
  const float size = 0.01f * (0.2f + fabsf(normal(seed + at)));
  weights[at] = at % heads < positive ? size : -size;
}

inline unsigned ctas(int64_t count) {
  return static_cast<unsigned>((count + kFillThreads - 1) / kFillThreads);
}

/// Normal queries and keys, `positive` heads of positive weight, the rest negative.
inline void fill_random(const DeviceProblem& inputs, int positive, uint64_t seed) {
  constexpr float kSize = 60.0f;  // most codes far from both ends of e4m3
  const dosa_problem& problem = inputs.problem;
  const int64_t queries = problem.num_queries * problem.num_heads * 128;
  const int64_t keys = problem.num_keys * 128;
  const int64_t weights = problem.num_queries * problem.num_heads;
  fill_codes<<<ctas(queries), kFillThreads>>>(inputs.q, queries, kSize, seed);
  fill_codes<<<ctas(keys), kFillThreads>>>(inputs.k, keys, kSize, seed + (1ull << 40));
  fill_scales<<<ctas(problem.num_keys), kFillThreads>>>(inputs.k_scale, problem.num_keys,
                                                        seed + (2ull << 40));
  fill_weights<<<ctas(weights), kFillThreads>>>(inputs.weights, weights, problem.num_heads,
                                                positive, seed + (3ull << 40));
  DOSA_CUDA(cudaDeviceSynchronize());
}

}  // namespace dosa::bench
