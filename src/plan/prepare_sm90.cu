// SPDX-License-Identifier: Apache-2.0
#include "plan/prepare_sm90.cuh"

#include <cuda_fp8.h>

#include <climits>

namespace dosa::plan {
namespace {

constexpr int kKeyThreads = 256;
constexpr int kPartsPerKey = 8;  // threads of one key, 16 codes each

/// Sum of squares of four e4m3 codes, rounded up.
__device__ float squares_up(uint32_t codes, float sum) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(codes >> (16 * i) & 0xffffu);
    const __half2 halves = __half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3));
    const float2 values = __half22float2(halves);
    sum = __fmaf_ru(values.x, values.x, sum);
    sum = __fmaf_ru(values.y, values.y, sum);
  }
  return sum;
}

/// The largest of 16 codes without their signs.
__device__ uint32_t largest_code(uint4 codes) {
  constexpr uint32_t kSizes = 0x7f7f7f7f;
  const uint32_t four = __vmaxu4(__vmaxu4(codes.x & kSizes, codes.y & kSizes),
                                 __vmaxu4(codes.z & kSizes, codes.w & kSizes));
  const uint32_t two = __vmaxu4(four, four >> 16);
  return __vmaxu4(two, two >> 8) & 0xffu;
}

/// 5 X(k) from the largest code without its sign; subnormal codes have the exponent -6.
__device__ float five_powers(uint32_t largest) {
  const uint32_t field = largest >> 3 > 1 ? largest >> 3 : 1;
  return 5.0f * __uint_as_float((field + 127 - 7) << 23);
}

/// n(k) < 2^13, so n(k) times the largest of these scales stays below 2^64: with what plan asks of
/// a row (kMostSize) no score overflows on the way, and a finite bound means a finite score.
__device__ bool prunable_scale(float scale) {
  constexpr float kLeastNormal = 0x1p-126f;
  constexpr float kMost = 0x1p51f;
  return scale >= kLeastNormal && scale < kMost;
}

__global__ void __launch_bounds__(kKeyThreads)
    key_meta_sm90_kernel(const uint8_t* k, int64_t k_stride, int head_dim, const float* k_scale,
                         int64_t num_keys, int64_t padded_keys, float2* meta) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  const int64_t key = at / kPartsPerKey;
  const int part = static_cast<int>(at % kPartsPerKey);
  float sum = 0.0f;
  uint32_t largest = 0;
  if (key < num_keys && part * 16 < head_dim) {
    const uint4 codes = *reinterpret_cast<const uint4*>(k + key * k_stride + part * 16);
    sum = squares_up(codes.w, squares_up(codes.z, squares_up(codes.y, squares_up(codes.x, 0.0f))));
    largest = largest_code(codes);
  }
#pragma unroll
  for (int step = 1; step < kPartsPerKey; step *= 2) {
    sum = __fadd_ru(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  if (part != 0 || key >= padded_keys) return;
  const float scale = key < num_keys ? k_scale[key] : 0.0f;
  const float nan = __int_as_float(0x7fffffff);
  const bool prunable = prunable_scale(scale) && sum == sum;
  meta[key] = make_float2(scale, prunable ? fmaxf(__fsqrt_ru(sum), five_powers(largest)) : nan);
}

__device__ int clamp_to(int value, int most) {
  const int positive = value > 0 ? value : 0;
  return positive < most ? positive : most;
}

__device__ int greatest_common_divisor(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// A stride near the golden section of `units`, coprime to it: its multiples spread evenly.
__device__ int spread_stride(int units) {
  if (units < 3) return 1;
  int stride = static_cast<int>(static_cast<double>(units) * 0.6180339887498949);
  if (stride < 1) stride = 1;
  while (greatest_common_divisor(units, stride) != 1) ++stride;
  return stride;
}

/// The records of the forced keys of the CTA's block of rows.
__device__ void write_forced(const numeric::RowState& rows, int topk) {
  const int first = static_cast<int>(blockIdx.x) * gpu::kBlockRows;
  for (int row = first; row < first + gpu::kBlockRows; ++row) {
    const numeric::ForcedKeys forced(rows, row, topk);
    uint64_t* const records = rows.records + static_cast<int64_t>(row) * rows.capacity;
    for (int i = static_cast<int>(threadIdx.x); i < forced.count; i += gpu::kBlockRows) {
      records[i] = forced.record(i);
    }
  }
}

__global__ void __launch_bounds__(gpu::kBlockRows)
    row_setup_sm90_kernel(const __grid_constant__ RowSetup setup,
                          const __grid_constant__ numeric::RowState rows, gpu::KeyOrder* orders) {
  __shared__ int low;
  __shared__ int high;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x) * gpu::kBlockRows + thread;
  const float infinity = __int_as_float(0x7f800000);
  const bool real = row < rows.rows;
  int2 window = make_int2(0, 0);
  if (real) {
    window.x = setup.k_start != nullptr ? clamp_to(setup.k_start[row], setup.num_keys) : 0;
    window.y = setup.k_end != nullptr ? clamp_to(setup.k_end[row], setup.num_keys) : setup.num_keys;
    if (window.y < window.x) window.y = window.x;
  }
  int2 ranked = window;
  ranked.x += clamp_to(setup.forced_first, window.y - window.x);
  ranked.y -= clamp_to(setup.forced_last, window.y - ranked.x);
  rows.visible[row] = window;
  rows.windows[row] = ranked;
  rows.counts[row] = numeric::ForcedKeys(rows, row, setup.topk).count;
  rows.flags[row] = 0;
  // Padding rows are closed: no key reaches their floors.
  rows.floor_record[row] = real ? 0 : ~uint64_t{0};
  rows.floor_score[row] = real ? __int_as_float(0x7fffffff) : infinity;
  rows.bound_floor[row] = real ? -infinity : infinity;
  rows.optimistic[row] = -infinity;
  if (thread == 0) {
    low = setup.num_keys;
    high = 0;
  }
  __syncthreads();
  if (ranked.x < ranked.y) {
    atomicMin(&low, ranked.x);
    atomicMax(&high, ranked.y);
  }
  __syncthreads();
  if (rows.records != nullptr && (setup.forced_first | setup.forced_last) != 0) {
    write_forced(rows, setup.topk);
  }
  if (thread != 0) return;
  const bool scout = static_cast<int>(blockIdx.x) % setup.scout_stride == 0;
  gpu::KeyOrder order{0, 0, 1, scout ? 0 : INT_MAX};
  if (low < high) {
    order.first_unit = low / gpu::kUnitKeys;
    order.units = (high - 1) / gpu::kUnitKeys + 1 - order.first_unit;
    if (!setup.in_order) order.stride = spread_stride(order.units);
  }
  orders[blockIdx.x] = order;
}

__global__ void pack_heads_sm90_kernel(const uint8_t* q, int64_t q_stride, int head_dim, int heads,
                                       int padded_heads, uint8_t* packed) {
  constexpr int kPieces = 128 / 4;
  const int64_t row = blockIdx.x;
  auto* const out = reinterpret_cast<uint32_t*>(packed + row * padded_heads * 128);
  const uint8_t* const in = q + row * q_stride;
  for (int i = static_cast<int>(threadIdx.x); i < padded_heads * kPieces;
       i += static_cast<int>(blockDim.x)) {
    const int head = i / kPieces;
    const int first = i % kPieces * 4;  // coordinate; D is a multiple of 4
    uint32_t word = 0;
    if (head < heads && first < head_dim) {
      for (int byte = 3; byte >= 0; --byte) word = word << 8 | in[head * head_dim + first + byte];
    }
    out[i] = word;
  }
}

}  // namespace

cudaError_t launch_key_meta_sm90(const uint8_t* k, int64_t k_stride, int head_dim,
                                 const float* k_scale, int64_t num_keys, int units, float2* meta,
                                 cudaStream_t stream) {
  if (units == 0) return cudaSuccess;
  const int64_t padded = static_cast<int64_t>(units) * gpu::kUnitKeys;
  const int64_t ctas = padded * kPartsPerKey / kKeyThreads;
  key_meta_sm90_kernel<<<static_cast<unsigned>(ctas), kKeyThreads, 0, stream>>>(
      k, k_stride, head_dim, k_scale, num_keys, padded, meta);
  return cudaGetLastError();
}

cudaError_t launch_row_setup_sm90(const RowSetup& setup, const numeric::RowState& rows,
                                  gpu::KeyOrder* orders, cudaStream_t stream) {
  if (setup.blocks == 0) return cudaSuccess;
  row_setup_sm90_kernel<<<setup.blocks, gpu::kBlockRows, 0, stream>>>(setup, rows, orders);
  return cudaGetLastError();
}

cudaError_t launch_pack_heads_sm90(const uint8_t* q, int64_t q_stride, int head_dim, int heads,
                                   int padded_heads, int rows, uint8_t* packed,
                                   cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  pack_heads_sm90_kernel<<<rows, kThreads, 0, stream>>>(q, q_stride, head_dim, heads, padded_heads,
                                                        packed);
  return cudaGetLastError();
}

}  // namespace dosa::plan
