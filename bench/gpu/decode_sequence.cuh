// SPDX-License-Identifier: Apache-2.0
// Decode sequences for measurements on the device: one set of keys, copied to the shuffled pages of
// every request, and query rows of which each is close to the one before.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device_inputs.cuh"
#include "dosa/dosa_decode.h"

namespace dosa::bench {

template <class T>
T* device_array(int64_t count) {
  T* data = nullptr;
  DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&data), static_cast<size_t>(count) * sizeof(T)));
  return data;
}

template <class T>
T* device_copy(const std::vector<T>& host) {
  T* const data = device_array<T>(static_cast<int64_t>(host.size()));
  DOSA_CUDA(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

/// Rows on a circle of 64 steps around a fixed direction: neighbours have the cosine
/// rest + (1 - rest) cos(2 pi / 64 * 8).
static __global__ void fill_walk(uint8_t* q, int64_t per_row, int64_t rows, float rest,
                                 uint64_t seed) {
  constexpr float kSize = 60.0f;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at >= per_row * rows) return;
  const int64_t row = at / per_row;
  const uint64_t place = static_cast<uint64_t>(at % per_row);
  const float turn = static_cast<float>(row % 8) / 4.0f;
  const float x = sqrtf(rest) * normal(seed + place) +
                  sqrtf(1.0f - rest) * (cospif(turn) * normal(seed + (1ull << 30) + place) +
                                        sinpif(turn) * normal(seed + (2ull << 30) + place));
  q[at] = __nv_cvt_float_to_fp8(kSize * x, __NV_SATFINITE, __NV_E4M3);
}

/// Head weights that do not change from row to row.
static __global__ void fill_steady_weights(float* weights, int64_t rows, int heads, int positive,
                                           uint64_t seed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at >= rows * heads) return;
  const int head = static_cast<int>(at % heads);
  const float size = 0.01f * (0.2f + fabsf(normal(seed + static_cast<uint64_t>(head))));
  weights[at] = head < positive ? size : -size;
}

/// Copies token t of the source to its place in each request's pages.
static __global__ void fill_pages(uint8_t* pages, const int32_t* table, int64_t blocks,
                                  const uint8_t* k, const float* k_scale, int64_t tokens) {
  constexpr int kPage = 64;
  constexpr int64_t kPageBytes = kPage * (128 + 4);
  const int64_t request = blockIdx.y;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kFillThreads / 32) + threadIdx.x / 32;
  if (token >= tokens) return;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  uint8_t* const page = pages + table[request * blocks + token / kPage] * kPageBytes;
  reinterpret_cast<uint32_t*>(page + token % kPage * 128)[lane] =
      reinterpret_cast<const uint32_t*>(k + token * 128)[lane];
  if (lane == 0) reinterpret_cast<float*>(page + kPage * 128)[token % kPage] = k_scale[token];
}

/// The last bytes of a file: the newest keys and queries of a trace.
inline void read_tail(const std::string& path, void* target, int64_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() < bytes) {
    throw std::runtime_error(path + ": expected at least " + std::to_string(bytes) + " bytes");
  }
  std::vector<char> host(static_cast<size_t>(bytes));
  file.seekg(-bytes, std::ios::end);
  file.read(host.data(), bytes);
  DOSA_CUDA(cudaMemcpy(target, host.data(), host.size(), cudaMemcpyHostToDevice));
}

/// Keys and query rows, contiguous on the device.
struct Sequence {
  int64_t tokens = 0;
  int heads = 0;
  int64_t rows = 0;
  uint8_t* q = nullptr;      // (rows, H, 128)
  float* weights = nullptr;  // (rows, H)
  uint8_t* k = nullptr;      // (tokens, 128)
  float* k_scale = nullptr;  // (tokens)
};

inline Sequence make_sequence(int64_t tokens, int heads, int64_t rows, int positive, float rest,
                              const std::string& files) {
  Sequence sequence{tokens, heads, rows};
  sequence.q = device_array<uint8_t>(rows * heads * 128);
  sequence.weights = device_array<float>(rows * heads);
  sequence.k = device_array<uint8_t>(tokens * 128);
  sequence.k_scale = device_array<float>(tokens);
  if (!files.empty()) {
    read_tail(files + ".q", sequence.q, rows * heads * 128);
    read_tail(files + ".k", sequence.k, tokens * 128);
    read_tail(files + ".k_scale", sequence.k_scale, tokens * 4);
    read_tail(files + ".weights", sequence.weights, rows * heads * 4);
    return sequence;
  }
  const int64_t per_row = heads * int64_t{128};
  fill_codes<<<ctas(tokens * 128), kFillThreads>>>(sequence.k, tokens * 128, 60.0f, 1);
  fill_scales<<<ctas(tokens), kFillThreads>>>(sequence.k_scale, tokens, 1ull << 41);
  fill_walk<<<ctas(rows * per_row), kFillThreads>>>(sequence.q, per_row, rows, rest, 1ull << 42);
  fill_steady_weights<<<ctas(rows * heads), kFillThreads>>>(sequence.weights, rows, heads, positive,
                                                            1ull << 43);
  DOSA_CUDA(cudaGetLastError());
  return sequence;
}

/// The pages of `requests` requests, all shuffled together.
struct Pages {
  uint8_t* pages = nullptr;
  int32_t* table = nullptr;  // (requests, blocks)
  int64_t blocks = 0;
  int64_t count = 0;
};

inline Pages make_pages(const Sequence& sequence, int64_t requests) {
  constexpr int64_t kPage = 64;
  Pages pages;
  pages.blocks = (sequence.tokens + kPage - 1) / kPage;
  pages.count = pages.blocks * requests;
  pages.pages = device_array<uint8_t>(pages.count * kPage * (128 + 4));
  std::vector<int32_t> table(static_cast<size_t>(pages.count));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(7));
  pages.table = device_copy(table);
  constexpr int64_t kTokens = kFillThreads / 32;
  const dim3 grid(static_cast<unsigned>((sequence.tokens + kTokens - 1) / kTokens),
                  static_cast<unsigned>(requests));
  fill_pages<<<grid, kFillThreads>>>(pages.pages, pages.table, pages.blocks, sequence.k,
                                     sequence.k_scale, sequence.tokens);
  DOSA_CUDA(cudaDeviceSynchronize());
  return pages;
}

}  // namespace dosa::bench
