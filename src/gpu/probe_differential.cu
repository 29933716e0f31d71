// SPDX-License-Identifier: Apache-2.0
//
// The tensor core against sm90_dot on generated tiles: every result bit, and the size of the error.
#include <stdexcept>
#include <string>

#include "gpu/probe.cuh"
#include "numeric/sm90_dot.hpp"

namespace dosa::gpu {
namespace {

// One warpgroup multiplies, two emulate; 256 registers each hold 128 accumulators.
constexpr int kCheckThreads = 256;

struct DifferentialParams {
  DifferentialOptions options;
  DifferentialResult* result;
};

/// The exact product and what the bounds need to know about a pair of rows.
struct ExactPair {
  long long units = 0;    // sum of products in units of 2^-18
  long long largest = 0;  // largest |product|, same units
  double norms = 0;       // |a| |b|
  double bound = 0;       // S8
  double simple = 0;      // S9
};

/// Squared prefix norms and the largest exponent of one row, k-step by k-step.
struct RowReach {
  double top = 0x1p-6;  // X
  double prefix = 0;    // |x_1..32t|^2
  double weighted = 0;  // sum over t < T of the above
};

template <int kColumns>
__device__ void fill_tile(const DifferentialOptions& options, std::uint64_t tile_index,
                          TileStorage<kColumns>& tile) {
  const TileKey key{options.seed, tile_index, options.input};
  const int dim = options.dim;
  for (int i = static_cast<int>(threadIdx.x); i < (kTileRows + kColumns) * dim;
       i += kCheckThreads) {
    const int row = i / dim;
    const int k = i % dim;
    const bool second = row >= kTileRows;
    const int local = second ? row - kTileRows : row;
    const std::uint8_t code = input_code(key, second ? 1 : 0, local, k);
    (second ? tile.b : tile.a)[core_offset(local, k)] = code;
    (second ? tile.plain_b : tile.plain_a)[local * kPlainStride + k] = code;
  }
  fence_shared_for_wgmma();
  __syncthreads();
}

__device__ double code_value(std::uint8_t code) {
  const Sm90Parts parts = e4m3_parts(code);
  return parts.significand == 0
             ? 0.0
             : scalbn(static_cast<double>(parts.significand), parts.exponent - 3);
}

/// Adds one k-step to the row; returns the norm of that step alone.
__device__ double extend(RowReach& row, const std::uint8_t* codes) {
  row.weighted += row.prefix;
  double own = 0;
  for (int i = 0; i < kStepBytes; ++i) {
    const double value = code_value(codes[i]);
    own += value * value;
    row.top = fmax(row.top, ldexp(1.0, e4m3_parts(codes[i]).exponent));
  }
  row.prefix += own;
  return sqrt(own);
}

__device__ void add_products(ExactPair& pair, const std::uint8_t* a, const std::uint8_t* b) {
  for (int i = 0; i < kStepBytes; ++i) {
    const Sm90Parts x = e4m3_parts(a[i]);
    const Sm90Parts y = e4m3_parts(b[i]);
    const int product = x.significand * y.significand;
    if (product == 0) continue;
    const long long units = static_cast<long long>(product) << (x.exponent + y.exponent + 12);
    pair.units += units;
    pair.largest = max(pair.largest, units < 0 ? -units : units);
  }
}

__device__ ExactPair exact_pair(const std::uint8_t* a, const std::uint8_t* b, int dim) {
  ExactPair pair;
  RowReach row_a;
  RowReach row_b;
  double prefix[kMaxDim / kStepBytes] = {};  // G_t
  const int steps = dim / kStepBytes;
  for (int t = 0; t < steps; ++t) {
    const int start = t * kStepBytes;
    add_products(pair, a + start, b + start);
    const double step = extend(row_a, a + start) * extend(row_b, b + start);
    prefix[t] = step + (t > 0 ? prefix[t - 1] : 0.0);
  }
  const double top = row_a.top * row_b.top;
  double units = (kStepBytes - 1) * top;
  for (int t = 0; t < steps; ++t) {
    units += prefix[t] + (t > 0 ? kStepBytes * fmax(top, prefix[t - 1]) : 0.0);
  }
  pair.norms = sqrt(row_a.prefix * row_b.prefix);
  pair.bound = units * 0x1p-13;
  pair.simple = 0x1p-13 * ((kStepBytes * steps - 1) * top +
                           (kStepBytes + 1) * sqrt(row_a.weighted * row_b.weighted) + pair.norms);
  return pair;
}

__device__ void raise(float* extreme, double value) {
  // Positive floats order like their bits.
  atomicMax(reinterpret_cast<unsigned*>(extreme), __float_as_uint(__double2float_ru(value)));
}

__device__ void measure_error(const DifferentialOptions& options, DifferentialResult* result,
                              const std::uint8_t* a, const std::uint8_t* b, std::uint32_t got) {
  const ExactPair pair = exact_pair(a, b, options.dim);
  const double exact = scalbn(static_cast<double>(pair.units), -18);
  const double error = fabs(static_cast<double>(__uint_as_float(got)) - exact);
  if (error == 0) return;
  raise(&result->error_over_product, error / scalbn(static_cast<double>(pair.largest), -18));
  raise(&result->error_over_norms, error / pair.norms);
  raise(&result->error_over_bound, error / pair.bound);
  raise(&result->error_over_simple, error / pair.simple);
  if (error > pair.bound) atomicAdd(&result->bound_violations, 1ULL);
}

/// The tile's operands, its products, and nothing else in shared memory.
template <int kColumns>
struct DifferentialStorage {
  TileStorage<kColumns> tile;
  float products[kTileRows * kColumns];
};

/// The first warpgroup multiplies; its accumulators become visible to the whole block.
template <int kColumns>
__device__ void multiply_tile(const DifferentialOptions& options,
                              DifferentialStorage<kColumns>& storage) {
  if (threadIdx.x < kTileThreads) {
    float acc[kColumns / 2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) acc[i] = 0.0F;
    multiply_shared<kColumns>(storage.tile, options.dim / kStepBytes, 0, acc);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      storage.products[fragment_row(i) * kColumns + fragment_column(i)] = acc[i];
    }
  }
  __syncthreads();
}

template <int kColumns>
__global__ void __launch_bounds__(kCheckThreads)
    probe_differential_sm90_e4m3_kernel(const __grid_constant__ DifferentialParams params) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  auto& storage = *reinterpret_cast<DifferentialStorage<kColumns>*>(shared);
  const DifferentialOptions& options = params.options;
  unsigned long long mismatches = 0;
  unsigned long long invalid = 0;
  unsigned long long dots = 0;
  for (std::uint64_t t = blockIdx.x; t < options.tiles; t += gridDim.x) {
    const std::uint64_t tile_index = options.first_tile + t;
    fill_tile<kColumns>(options, tile_index, storage.tile);
    multiply_tile<kColumns>(options, storage);
    for (int cell = static_cast<int>(threadIdx.x); cell < kTileRows * kColumns;
         cell += kCheckThreads) {
      const int row = cell / kColumns;
      const int column = cell % kColumns;
      const std::uint8_t* a = storage.tile.plain_a + row * kPlainStride;
      const std::uint8_t* b = storage.tile.plain_b + column * kPlainStride;
      const std::uint32_t want = sm90_dot_bits(a, b, options.dim);
      const std::uint32_t got = __float_as_uint(storage.products[cell]);
      ++dots;
      if (want != got) {
        ++mismatches;
        atomicMin(&params.result->first_mismatch, tile_index << 32 |
                                                      static_cast<std::uint64_t>(row) << 16 |
                                                      static_cast<std::uint64_t>(column));
      }
      if (got == kSm90NanBits) {
        ++invalid;
      } else if (tile_index % options.error_every == 0) {
        measure_error(options, params.result, a, b, got);
      }
    }
    __syncthreads();
  }
  atomicAdd(&params.result->dots, dots);
  atomicAdd(&params.result->mismatches, mismatches);
  atomicAdd(&params.result->invalid, invalid);
}

template <int kColumns>
void launch_differential(const DifferentialParams& params) {
  auto* kernel = probe_differential_sm90_e4m3_kernel<kColumns>;
  const int bytes = static_cast<int>(sizeof(DifferentialStorage<kColumns>));
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "cudaFuncSetAttribute");
  int device = 0;
  int processors = 0;
  int blocks = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kCheckThreads,
                                                           static_cast<std::size_t>(bytes)),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const std::uint64_t resident = static_cast<std::uint64_t>(processors) * blocks;
  const std::uint64_t grid = params.options.tiles < resident ? params.options.tiles : resident;
  kernel<<<static_cast<unsigned>(grid), kCheckThreads, bytes>>>(params);
  check_cuda(cudaGetLastError(), "launch of the differential kernel");
  check_cuda(cudaDeviceSynchronize(), "differential kernel");
}

}  // namespace

DifferentialResult run_differential(const DifferentialOptions& options) {
  std::vector<DifferentialResult> host(1);
  const DeviceBytes device(sizeof(DifferentialResult));
  upload(device, host);
  const DifferentialParams params{options, device.as<DifferentialResult>()};
  switch (options.columns) {
    case 8:
      launch_differential<8>(params);
      break;
    case 32:
      launch_differential<32>(params);
      break;
    case 64:
      launch_differential<64>(params);
      break;
    case 128:
      launch_differential<128>(params);
      break;
    case 256:
      launch_differential<256>(params);
      break;
    default:
      throw std::runtime_error("columns must be 8, 32, 64, 128 or 256, found " +
                               std::to_string(options.columns));
  }
  download(host, device);
  return host[0];
}

}  // namespace dosa::gpu
