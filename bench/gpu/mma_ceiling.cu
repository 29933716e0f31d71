// SPDX-License-Identifier: Apache-2.0
// What mma.sync reaches on this card with operands in registers: the floor's rate for the kernels
// of the score model `mma_f16`, alone and beside fused multiply-adds, which share the registers'
// bandwidth with it. Operands are random, since zeros draw less power.
//
// mma_ceiling [SECONDS]: how long the card is loaded (default 0.5), and a third of that with each
// of one to three multiply-adds per product
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/mma.cuh"

namespace dosa::bench {
namespace {

constexpr int kThreads = 256;  // as the product kernels
constexpr int kTiles = 8;      // independent accumulators of a warp
constexpr int kSteps = 8;
constexpr int kLoops = 2000;

__device__ uint32_t random_halves(uint32_t seed) {
  seed = (seed ^ seed >> 16) * 0x7feb352du;
  seed = (seed ^ seed >> 15) * 0x846ca68bu;
  return ((seed ^ seed >> 16) & 0xbfffbfff) % 0x7c007c00;  // any sign, exponents below 1
}

/// Eight steps over eight tiles, as a warp of the product kernels has them, without the rest:
/// kOthers multiply-adds follow each product.
template <int kOthers>
__global__ void __launch_bounds__(kThreads, 1) mma_ceiling_kernel(float* out, float factor) {
  const uint32_t seed = (blockIdx.x * kThreads + threadIdx.x) * 4096;
  uint32_t a[kSteps][4];
  uint32_t b[kTiles][kSteps][2];
  float products[kTiles][4] = {};
  float others[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) others[i] = static_cast<float>(i);
#pragma unroll
  for (int i = 0; i < kSteps * 4; ++i) a[i / 4][i % 4] = random_halves(seed + i);
#pragma unroll
  for (int i = 0; i < kTiles * kSteps * 2; ++i) {
    b[i / (kSteps * 2)][i / 2 % kSteps][i % 2] = random_halves(seed + 100 + i);
  }
#pragma unroll 1
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        gpu::mma_f16(products[tile], a[step], b[tile][step][0], b[tile][step][1]);
#pragma unroll
        for (int i = 0; i < kOthers; ++i) {
          float& other = others[(tile * kOthers + i) % kTiles];
          other = __fmaf_rn(other, factor, others[(tile * kOthers + i + 1) % kTiles]);
        }
      }
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) sum += products[i / 4][i % 4];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) sum += others[i];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

template <int kOthers>
void run(double seconds) {
  int multiprocessors = 0;
  DOSA_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  float* out = nullptr;
  DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&out), sizeof(float) * multiprocessors * kThreads));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  DOSA_CUDA(cudaEventCreate(&begin));
  DOSA_CUDA(cudaEventCreate(&end));
  const double operations = 2.0 * 16 * 8 * 16 * kTiles * kSteps * kLoops * (kThreads / 32) *
                            static_cast<double>(multiprocessors);
  std::vector<double> rates;
  for (double spent = 0.0; spent < seconds || rates.size() < 3;) {
    DOSA_CUDA(cudaEventRecord(begin));
    mma_ceiling_kernel<kOthers><<<multiprocessors, kThreads>>>(out, 0.999f);
    DOSA_CUDA(cudaGetLastError());
    DOSA_CUDA(cudaEventRecord(end));
    DOSA_CUDA(cudaEventSynchronize(end));
    float ms = 0.0f;
    DOSA_CUDA(cudaEventElapsedTime(&ms, begin, end));
    spent += static_cast<double>(ms) * 1e-3;
    rates.push_back(operations / (static_cast<double>(ms) * 1e9));
  }
  const double last = rates.back();
  std::sort(rates.begin(), rates.end());
  std::printf("mma.sync m16n8k16 f16");
  if (kOthers > 0) std::printf(" and %d multiply-adds", kOthers);
  std::printf(": %.1f TFLOP/s (median of %zu, %.1f to %.1f, the last %.1f)\n",
              rates[rates.size() / 2], rates.size(), rates.front(), rates.back(), last);
  DOSA_CUDA(cudaFree(out));
}

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  try {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
    dosa::bench::run<0>(seconds);
    dosa::bench::run<1>(seconds / 3);
    dosa::bench::run<2>(seconds / 3);
    dosa::bench::run<3>(seconds / 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mma_ceiling: %s\n", error.what());
    return 1;
  }
  return 0;
}
