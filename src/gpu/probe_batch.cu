// SPDX-License-Identifier: Apache-2.0
//
// Explicit tiles through the tensor core: operands in, result bits out.
#include <stdexcept>
#include <string>

#include "gpu/probe.cuh"

namespace dosa::gpu {
namespace {

struct BatchParams {
  const std::uint8_t* a;       // (tiles, 64, dim)
  const std::uint8_t* b;       // (tiles, columns, dim)
  const std::uint32_t* start;  // (tiles, 64, columns) or null
  std::uint32_t* result;       // (tiles, 64, columns)
  int steps;
};

template <int kColumns>
__device__ void load_batch_tile(const BatchParams& params, TileStorage<kColumns>& tile) {
  const int dim = params.steps * kStepBytes;
  const auto index = static_cast<std::size_t>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < (kTileRows + kColumns) * dim; i += kTileThreads) {
    const int row = i / dim;
    const int k = i % dim;
    if (row < kTileRows) {
      const std::uint8_t code = params.a[(index * kTileRows + row) * dim + k];
      tile.a[core_offset(row, k)] = code;
      tile.plain_a[row * kPlainStride + k] = code;
    } else {
      const int column = row - kTileRows;
      const std::uint8_t code = params.b[(index * kColumns + column) * dim + k];
      tile.b[core_offset(column, k)] = code;
      tile.plain_b[column * kPlainStride + k] = code;
    }
  }
  fence_shared_for_wgmma();
  __syncthreads();
}

template <int kColumns, Route kRoute>
__global__ void __launch_bounds__(kTileThreads, 1)
    probe_batch_sm90_e4m3_kernel(const __grid_constant__ BatchParams params) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  auto& tile = *reinterpret_cast<TileStorage<kColumns>*>(shared);
  load_batch_tile(params, tile);

  const std::size_t base = static_cast<std::size_t>(blockIdx.x) * kTileRows * kColumns;
  float acc[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const std::size_t cell = base + fragment_row(i) * kColumns + fragment_column(i);
    // Poison when nothing is to be added: scale-d = 0 must not read it.
    acc[i] = __uint_as_float(params.start == nullptr ? 0x7f7fffffU : params.start[cell]);
  }
  const int accumulate = params.start == nullptr ? 0 : 1;
  if constexpr (kRoute == Route::kShared) {
    multiply_shared<kColumns>(tile, params.steps, accumulate, acc);
  } else if constexpr (kRoute == Route::kRegisters) {
    multiply_registers(tile, params.steps, accumulate, acc);
  } else {
    multiply_mma_sync(tile, params.steps, accumulate, acc);
  }
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const std::size_t cell = base + fragment_row(i) * kColumns + fragment_column(i);
    params.result[cell] = __float_as_uint(acc[i]);
  }
}

template <int kColumns, Route kRoute>
void launch_batch(const BatchParams& params, int tiles) {
  auto* kernel = probe_batch_sm90_e4m3_kernel<kColumns, kRoute>;
  const int bytes = static_cast<int>(sizeof(TileStorage<kColumns>));
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "cudaFuncSetAttribute");
  kernel<<<tiles, kTileThreads, bytes>>>(params);
  check_cuda(cudaGetLastError(), "launch of the batch kernel");
  check_cuda(cudaDeviceSynchronize(), "batch kernel");
}

void launch_by_columns(const BatchParams& params, int tiles, int columns, Route route) {
  if (route != Route::kShared && columns != 64) {
    throw std::runtime_error("only 64 columns are built for operands in registers");
  }
  if (route == Route::kRegisters) return launch_batch<64, Route::kRegisters>(params, tiles);
  if (route == Route::kMmaSync) return launch_batch<64, Route::kMmaSync>(params, tiles);
  switch (columns) {
    case 8:
      return launch_batch<8, Route::kShared>(params, tiles);
    case 32:
      return launch_batch<32, Route::kShared>(params, tiles);
    case 64:
      return launch_batch<64, Route::kShared>(params, tiles);
    case 128:
      return launch_batch<128, Route::kShared>(params, tiles);
    case 256:
      return launch_batch<256, Route::kShared>(params, tiles);
    default:
      throw std::runtime_error("columns must be 8, 32, 64, 128 or 256, found " +
                               std::to_string(columns));
  }
}

}  // namespace

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

TileBatch make_batch(std::uint64_t seed, int tiles, int columns, int steps, bool with_start,
                     int classes) {
  TileBatch batch;
  batch.columns = columns;
  batch.steps = steps;
  const int dim = batch.dim();
  for (int t = 0; t < tiles; ++t) {
    const TileKey key{seed, static_cast<std::uint64_t>(t), static_cast<InputClass>(t % classes)};
    for (int i = 0; i < kTileRows * dim; ++i) {
      batch.a.push_back(input_code(key, 0, i / dim, i % dim));
    }
    for (int i = 0; i < columns * dim; ++i) {
      batch.b.push_back(input_code(key, 1, i / dim, i % dim));
    }
    for (int i = 0; with_start && i < kTileRows * columns; ++i) {
      batch.start.push_back(input_accumulator(key, i / columns, i % columns));
    }
  }
  return batch;
}

void multiply_batch(TileBatch& batch, Route route) {
  const std::size_t tiles = batch.a.size() / (kTileRows * static_cast<std::size_t>(batch.dim()));
  batch.result.assign(tiles * kTileRows * static_cast<std::size_t>(batch.columns), 0);
  const DeviceBytes a(batch.a.size());
  const DeviceBytes b(batch.b.size());
  const DeviceBytes start(batch.start.size() * sizeof(std::uint32_t));
  const DeviceBytes result(batch.result.size() * sizeof(std::uint32_t));
  upload(a, batch.a);
  upload(b, batch.b);
  upload(start, batch.start);
  const BatchParams params{a.as<std::uint8_t>(), b.as<std::uint8_t>(),
                           batch.start.empty() ? nullptr : start.as<std::uint32_t>(),
                           result.as<std::uint32_t>(), batch.steps};
  launch_by_columns(params, static_cast<int>(tiles), batch.columns, route);
  download(batch.result, result);
}

}  // namespace dosa::gpu
