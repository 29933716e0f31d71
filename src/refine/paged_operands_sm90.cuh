// SPDX-License-Identifier: Apache-2.0
// The two operands of a decode step in shared memory: columns (queries times heads) and gathered
// keys, both as rows of 128 bytes with the 128-byte swizzle; and their product.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/ptx_paged_sm90.cuh"
#include "numeric/paged_sm90.cuh"
#include "refine/chain_sm90.cuh"

namespace dosa::refine {

/// A tile of columns: as many queries of a request as fit, each with its padded heads. The narrower
/// tiles serve steps of one or two queries, whose products would be mostly padding otherwise; all
/// widths give the same bits (docs/numerics-sm90.md).
template <int kHeads_, int kQueries_>
struct ColumnTile {
  static constexpr int kHeads = kHeads_;
  static constexpr int kQueries = kQueries_;
  static constexpr int kColumns = kHeads * kQueries;
  static constexpr int kProducts = kColumns / 2;  // per thread
  static constexpr int kWeights = kColumns / 4;   // per lane class
  static constexpr int kBytes = kColumns * 128;
  static constexpr int kWeightFloats = 4 * kClassStride;
  using Chain = ScoreChain<kHeads, kColumns>;
  using Share = LaneShare<kQueries>;
  static_assert(kColumns == 32 || kColumns == 64 || kColumns == 128, "widths with a product");
};

/// Column tiles that hold all queries of a request.
template <class T>
__host__ __device__ __forceinline__ int column_tiles(int next_n) {
  return (next_n + T::kQueries - 1) / T::kQueries;
}

/// Starts the copies of a request's columns and stores its weights; `thread` of `threads` does its
/// share. Queries and heads that do not exist are zeros.
/// Shapes:   columns (tiles * kColumns, 128) 128B swizzle; weights (tiles, 4, kClassStride)
template <class T>
__device__ void load_columns(const numeric::PagedStep& step, int b, uint8_t* columns,
                             float* weights, int thread, int threads) {
  const int total = column_tiles<T>(step.next_n) * T::kColumns;
  const int64_t first_row = static_cast<int64_t>(b) * step.next_n;
  constexpr int kPieces = 8;  // of 16 bytes
  for (int i = thread; i < total * kPieces; i += threads) {
    const int column = i / kPieces;
    const int piece = i % kPieces;
    const int query = column / T::kHeads;
    const int head = column % T::kHeads;
    const bool real = query < step.next_n && head < step.heads;
    const uint8_t* const source =
        real ? step.q + (first_row + query) * step.q_stride + head * 128 + piece * 16 : step.q;
    const uint32_t target = gpu::shared_address(columns + column * 128);
    gpu::copy_async_16(target + (piece ^ (column & 7)) * 16, source, real);
  }
  for (int column = thread; column < total; column += threads) {
    const int query = column / T::kHeads;
    const int head = column % T::kHeads;
    const bool real = query < step.next_n && head < step.heads;
    const int place = column % T::kColumns;
    weights[column / T::kColumns * T::kWeightFloats + place % 8 / 2 * kClassStride + place / 8 * 2 +
            place % 2] =
        real ? step.weights[(first_row + query) * step.weights_stride + head] : 0.0f;
  }
}

/// Where a token's key lies; null where the table names no page of the cache for it.
__device__ __forceinline__ const uint8_t* find_key(const numeric::PagedStep& step, int page,
                                                   int token) {
  if (page < 0) return nullptr;
  const int place = token & (step.page_size - 1);
  return step.pages + page * step.page_stride + place * 128;
}

/// Starts the copies of `kCount` keys to the rows from `first_row` on of a tile: lane i of the warp
/// knows key i, and all lanes copy each of them, four bytes apiece, since pages may begin at any
/// multiple of four. Null keys become zeros.
/// Shapes:   keys (64, 128) 128B swizzle; scales (64)
template <int kCount>
__device__ __forceinline__ void gather_keys(const numeric::PagedStep& step, const uint8_t* key,
                                            int token, uint8_t* keys, float* scales,
                                            int first_row) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if (lane < kCount) {
    const int place = token & (step.page_size - 1);
    // The page's scales follow its keys.
    const uint8_t* const scale =
        key != nullptr ? key + (step.page_size - place) * 128 + place * 4 : step.pages;
    gpu::copy_async_4(gpu::shared_address(scales + first_row + lane), scale, key != nullptr);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const auto address = reinterpret_cast<uint64_t>(key);
    const auto source = reinterpret_cast<const uint8_t*>(__shfl_sync(0xffffffffu, address, i));
    const int row = first_row + i;
    const uint32_t target = gpu::shared_address(keys + row * 128);
    gpu::copy_async_4(target + (lane / 4 ^ (row & 7)) * 16 + lane % 4 * 4,
                      source != nullptr ? source + lane * 4 : step.pages, source != nullptr);
  }
}

/// Starts the four products of 64 keys with a tile of columns; both are descriptors.
template <int kProducts>
__device__ __forceinline__ void start_products(float (&products)[kProducts], uint64_t keys,
                                               uint64_t columns) {
  gpu::pin_registers(products);
  gpu::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    gpu::wgmma_k32(products, keys + step * 2, columns + step * 2, step != 0);
  }
  gpu::wgmma_commit();
}

template <int kProducts>
__device__ __forceinline__ void finish_products(float (&products)[kProducts]) {
  gpu::wgmma_wait<0>();
  gpu::pin_registers(products);
}

}  // namespace dosa::refine
