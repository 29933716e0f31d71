// SPDX-License-Identifier: Apache-2.0
// Times single kernels of a score model on random data against their arithmetic floors.
//
// kernels [QUERIES KEYS PEAK_TFLOPS MODEL]: MODEL is sm90 (default), mma_f16 or mma_fp8
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "device_inputs.cuh"
#include "engine/cuda_products.hpp"
#include "gpu/tensor_map.hpp"
#include "plan/prepare_sm90.cuh"
#include "plan/screen_layout_sm90.cuh"
#include "products_alone.cuh"
#include "refine/dense_sm90.cuh"
#include "screen/screen_sm90.cuh"

namespace dosa::bench {
namespace {

constexpr int kRoundUnits = 512;  // as the engine's largest screened round

template <class T>
T* allocate(int64_t count) {
  T* data = nullptr;
  DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T)));
  return data;
}

struct Setup {
  int rows;
  int blocks;
  int units;
  float2* meta;
  numeric::RowState state;
  gpu::KeyOrder* orders;
  int multiprocessors;
};

gpu::CodeRows key_rows(const dosa_problem& problem) {
  return {static_cast<const uint8_t*>(problem.k), problem.num_keys, problem.k_stride, 128};
}

const engine::CudaProducts& products_of(const char* model) {
  if (std::strcmp(model, "sm90") == 0) return engine::cuda_products(DOSA_MODEL_SM90);
  if (std::strcmp(model, "mma_f16") == 0) return engine::cuda_products(DOSA_MODEL_MMA_F16);
  if (std::strcmp(model, "mma_fp8") == 0) return engine::cuda_products(DOSA_MODEL_MMA_FP8);
  throw std::invalid_argument("MODEL is sm90, mma_f16 or mma_fp8");
}

Setup prepare(const dosa_problem& problem, int rows) {
  Setup setup{};
  setup.rows = rows;
  setup.blocks = rows / gpu::kBlockRows;
  setup.units = static_cast<int>(problem.num_keys / gpu::kUnitKeys);
  setup.meta = allocate<float2>(problem.num_keys);
  setup.state.visible = allocate<int2>(rows);
  setup.state.windows = allocate<int2>(rows);
  setup.state.floor_record = allocate<uint64_t>(rows);
  setup.state.floor_score = allocate<float>(rows);
  setup.state.bound_floor = allocate<float>(rows);
  setup.state.optimistic = allocate<float>(rows);
  setup.state.counts = allocate<uint32_t>(rows);
  setup.state.flags = allocate<uint32_t>(rows);
  setup.state.capacity = 8192;
  setup.state.records = allocate<uint64_t>(static_cast<int64_t>(rows) * 8192);
  setup.state.rows = rows;
  DOSA_CUDA(cudaDeviceGetAttribute(&setup.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  setup.orders = allocate<gpu::KeyOrder>(setup.blocks);
  DOSA_CUDA(plan::launch_key_meta_sm90(problem.k, problem.k_stride, 128, problem.k_scale,
                                       problem.num_keys, setup.units, setup.meta, nullptr));
  plan::RowSetup rows_setup{};
  rows_setup.num_keys = static_cast<int>(problem.num_keys);
  rows_setup.blocks = setup.blocks;
  rows_setup.topk = problem.topk;
  rows_setup.scout_stride = 1;
  DOSA_CUDA(plan::launch_row_setup_sm90(rows_setup, setup.state, setup.orders, nullptr));
  DOSA_CUDA(cudaDeviceSynchronize());
  return setup;
}

void report(const char* name, double flops, double peak, const std::function<void()>& launch) {
  constexpr int kRepeats = 7;
  std::vector<float> times;
  for (int i = -1; i < kRepeats; ++i) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    DOSA_CUDA(cudaEventCreate(&begin));
    DOSA_CUDA(cudaEventCreate(&end));
    DOSA_CUDA(cudaEventRecord(begin));
    launch();
    DOSA_CUDA(cudaEventRecord(end));
    DOSA_CUDA(cudaEventSynchronize(end));
    float ms = 0.0f;
    DOSA_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) times.push_back(ms);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  std::sort(times.begin(), times.end());
  const double ms = static_cast<double>(times[kRepeats / 2]);
  const double floor_ms = flops / peak / 1e9;
  std::printf("%-24s %8.3f ms (%.3f .. %.3f)  floor %8.3f  ratio %.2f  %.0f TFLOP/s\n", name, ms,
              static_cast<double>(times.front()), static_cast<double>(times.back()), floor_ms,
              ms / floor_ms, flops / ms / 1e9);
  std::fflush(stdout);
}

void time_screen(const dosa_problem& problem, const Setup& setup, int screen_rows, double peak,
                 const engine::CudaProducts& products) {
  screen::ScreenParams params{};
  const int64_t operand_rows = static_cast<int64_t>(setup.rows) * screen_rows;
  auto* const operand = allocate<uint8_t>(operand_rows * 128);
  DOSA_CUDA(cudaMemcpy(operand, problem.q, operand_rows * 128, cudaMemcpyDeviceToDevice));
  const int64_t floats = static_cast<int64_t>(setup.rows) * plan::ScreenLayout::stride(screen_rows);
  auto* const coefficients = allocate<float>(floats);
  std::vector<float> host(floats, 0.01f);
  DOSA_CUDA(cudaMemcpy(coefficients, host.data(), floats * 4, cudaMemcpyHostToDevice));
  params.keys = gpu::make_row_map(problem.k, problem.num_keys, 128, gpu::kUnitKeys);
  params.columns =
      gpu::make_row_map(operand, operand_rows, 128, plan::ScreenLayout::tile_columns(screen_rows));
  params.key_rows = key_rows(problem);
  params.column_rows = {operand, operand_rows, 128, 128};
  params.key_meta = setup.meta;
  params.rows = setup.state;
  params.coefficients = coefficients;
  params.mask_units = kRoundUnits;
  params.masks =
      allocate<uint32_t>(static_cast<int64_t>(setup.blocks) * kRoundUnits * screen::kMaskWords);
  char name[32];
  std::snprintf(name, sizeof name, "screen R' = %d", screen_rows);
  const double flops =
      2.0 * 128 * static_cast<double>(operand_rows) * static_cast<double>(problem.num_keys);
  report(name, flops, peak, [&] {
    for (int begin = 0; begin < setup.units; begin += kRoundUnits) {
      params.round = {
          setup.orders,     setup.blocks, 0, begin, std::min(begin + kRoundUnits, setup.units),
          gpu::Kind::kEvery};
      DOSA_CUDA(products.screen(params, screen_rows, setup.multiprocessors, nullptr));
    }
  });
  cudaFree(operand);
  cudaFree(coefficients);
  cudaFree(params.masks);
}

void time_dense(const dosa_problem& problem, const Setup& setup, bool store, double peak,
                const engine::CudaProducts& products) {
  refine::DenseParams params{};
  params.keys = gpu::make_row_map(problem.k, problem.num_keys, 128, gpu::kUnitKeys);
  params.columns =
      gpu::make_row_map(problem.q, static_cast<int64_t>(setup.rows) * problem.num_heads, 128, 128);
  params.key_rows = key_rows(problem);
  params.column_rows = {static_cast<const uint8_t*>(problem.q),
                        static_cast<int64_t>(setup.rows) * problem.num_heads, 128, 128};
  params.key_meta = setup.meta;
  params.rows = setup.state;
  params.round = {setup.orders, setup.blocks, 0, 0, setup.units, gpu::Kind::kEvery};
  params.weights = problem.weights;
  params.weights_stride = problem.weights_stride;
  params.heads = problem.num_heads;
  params.num_keys = static_cast<int>(problem.num_keys);
  params.scores_stride = problem.num_keys;
  if (store) params.scores = allocate<float>(setup.rows * problem.num_keys);
  if (!store) {  // closed rows: the cost of finding that nothing passes
    std::vector<float> high(setup.rows, 1e30f);
    DOSA_CUDA(
        cudaMemcpy(setup.state.floor_score, high.data(), high.size() * 4, cudaMemcpyHostToDevice));
  }
  char name[32];
  std::snprintf(name, sizeof name, "dense %s H = %d", store ? "store" : "record",
                problem.num_heads);
  const double flops =
      2.0 * 128 * setup.rows * problem.num_heads * static_cast<double>(problem.num_keys);
  report(name, flops, peak, [&] {
    DOSA_CUDA(products.dense(params, problem.num_heads,
                             store ? refine::Sink::kStore : refine::Sink::kRecord,
                             setup.multiprocessors, nullptr));
  });
  if (store) cudaFree(params.scores);
}

/// The streaming of `mma_f16` alone, by as many columns of a row as screening has with R' rows.
template <int kTiles>
void time_products_alone(const dosa_problem& problem, const Setup& setup, double peak) {
  using Products = ProductsAlone<kTiles>;
  ProductsAloneParams params{};
  const int64_t columns = static_cast<int64_t>(setup.rows) * Products::kRowColumns;
  params.key_rows = key_rows(problem);
  params.column_rows = {static_cast<const uint8_t*>(problem.q), columns, 128, 128};
  params.key_meta = setup.meta;
  params.round = {setup.orders, setup.blocks, 0, 0, setup.units, gpu::Kind::kEvery};
  params.out = allocate<float>(1);
  char name[32];
  std::snprintf(name, sizeof name, "products alone, %d", 8 * kTiles);
  report(name, 2.0 * 128 * static_cast<double>(columns) * static_cast<double>(problem.num_keys),
         peak, [&] {
           const cudaError_t status = gpu::launch_stream_mma<gpu::PathF16, Products>(
               params, setup.multiprocessors, nullptr);
           DOSA_CUDA(status);
         });
  cudaFree(params.out);
}

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  using namespace dosa::bench;
  const int queries = argc > 1 ? std::atoi(argv[1]) : 8192;
  const int64_t keys = argc > 2 ? std::atoll(argv[2]) : 1 << 20;
  const double peak = argc > 3 ? std::atof(argv[3]) : 1400.0;
  try {
    const dosa::engine::CudaProducts& products = products_of(argc > 4 ? argv[4] : "sm90");
    for (const int heads : {32, 64}) {
      const DeviceProblem inputs(queries, keys, heads, 2048);
      fill_random(inputs, 6, 1);
      const Setup setup = prepare(inputs.problem, queries);
      if (heads == 32) {
        for (const int rows : {8, 16, 24, 32}) {
          time_screen(inputs.problem, setup, rows, peak, products);
        }
        if (!products.tensor_maps) {
          time_products_alone<8>(inputs.problem, setup, peak);
          time_products_alone<12>(inputs.problem, setup, peak);
        }
      }
      time_dense(inputs.problem, setup, true, peak, products);
      time_dense(inputs.problem, setup, false, peak, products);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels: %s\n", error.what());
    return 1;
  }
  return 0;
}
