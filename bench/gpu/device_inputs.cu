// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_inputs.hpp"

#include <cuda_fp8.h>

#include <stdexcept>

namespace dosa::bench {
namespace {

constexpr int kThreads = 256;

__device__ uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

__device__ float normal(uint64_t counter) {
  const uint64_t bits = mix(counter);
  const float u = (static_cast<float>(static_cast<uint32_t>(bits)) + 1.0f) * 0x1p-32f;
  const float v = static_cast<float>(static_cast<uint32_t>(bits >> 32)) * 0x1p-31f;
  return sqrtf(-2.0f * logf(u)) * cospif(v);
}

__global__ void fill_codes(uint8_t* codes, int64_t count, float size, uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) {
    codes[at] = __nv_cvt_float_to_fp8(size * normal(seed + at), __NV_SATFINITE, __NV_E4M3);
  }
}

__global__ void fill_scales(float* scales, int64_t count, uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) scales[at] = 0.01f * expf(0.1f * normal(seed + at));
}

__global__ void fill_weights(float* weights, int64_t count, int heads, int positive,
                             uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const float size = 0.01f * (0.2f + fabsf(normal(seed + at)));
  weights[at] = at % heads < positive ? size : -size;
}

unsigned ctas(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

void read_file(const std::string& path, void* target, int64_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() != bytes) {
    throw std::runtime_error(path + ": expected a file of " + std::to_string(bytes) + " bytes");
  }
  std::vector<char> host(static_cast<size_t>(bytes));
  file.seekg(0);
  file.read(host.data(), bytes);
  DOSA_CUDA(cudaMemcpy(target, host.data(), host.size(), cudaMemcpyHostToDevice));
}

}  // namespace

void fill_random(const DeviceProblem& inputs, int positive, uint64_t seed) {
  constexpr float kSize = 60.0f;  // most codes far from both ends of e4m3
  const dosa_problem& problem = inputs.problem;
  const int64_t queries = problem.num_queries * problem.num_heads * 128;
  const int64_t keys = problem.num_keys * 128;
  const int64_t weights = problem.num_queries * problem.num_heads;
  fill_codes<<<ctas(queries), kThreads>>>(inputs.q, queries, kSize, seed);
  fill_codes<<<ctas(keys), kThreads>>>(inputs.k, keys, kSize, seed + (1ull << 40));
  fill_scales<<<ctas(problem.num_keys), kThreads>>>(inputs.k_scale, problem.num_keys,
                                                    seed + (2ull << 40));
  fill_weights<<<ctas(weights), kThreads>>>(inputs.weights, weights, problem.num_heads, positive,
                                            seed + (3ull << 40));
  DOSA_CUDA(cudaDeviceSynchronize());
}

void fill_from_files(const DeviceProblem& inputs, const std::string& prefix) {
  const dosa_problem& problem = inputs.problem;
  read_file(prefix + ".q", inputs.q, problem.num_queries * problem.num_heads * 128);
  read_file(prefix + ".k", inputs.k, problem.num_keys * 128);
  read_file(prefix + ".k_scale", inputs.k_scale, problem.num_keys * 4);
  read_file(prefix + ".weights", inputs.weights, problem.num_queries * problem.num_heads * 4);
}

}  // namespace dosa::bench
