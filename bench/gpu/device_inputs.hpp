// SPDX-License-Identifier: Apache-2.0
// Inputs of real size for measurements on the device: made there, or read from raw files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <fstream>
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

/// Normal queries and keys, `positive` heads of positive weight, the rest negative.
void fill_random(const DeviceProblem& inputs, int positive, uint64_t seed);

/// Reads PREFIX.q, .k, .k_scale and .weights: the tensors' bytes, exactly as long as the shapes ask.
void fill_from_files(const DeviceProblem& inputs, const std::string& prefix);

}  // namespace dosa::bench
