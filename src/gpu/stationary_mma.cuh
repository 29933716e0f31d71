// SPDX-License-Identifier: Apache-2.0
// Keys streamed past stationary columns with mma.sync: screening and dense scoring on every card.
//
// A CTA of eight warps streams units of 256 keys through two buffers of shared memory. Each warp
// keeps its own columns in registers and multiplies them with all keys, 16 at a time, so that a key
// is read from memory once per eight warps' columns and nothing but keys passes shared memory.
#pragma once

#include <cstdint>

#include "gpu/operands_mma.cuh"
#include "gpu/stationary_params.cuh"

namespace dosa::gpu {

struct StreamConfig {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBuffers = 2;
  static constexpr int kRowBytes = 128;
  static constexpr int kUnitBytes = kUnitKeys * kRowBytes;
  static constexpr int kMostShared = 99 * 1024;  // of one CTA on sm_86, 89 and 120
};

struct StreamShared {
  alignas(128) uint8_t keys[StreamConfig::kBuffers][StreamConfig::kUnitBytes];  // swizzled rows
  alignas(16) float2 meta[StreamConfig::kBuffers][kUnitKeys];
  WorkSplit split;
};
static_assert(sizeof(StreamShared) <= StreamConfig::kMostShared, "the buffers fit every card");

/// Starts the copies of a unit of keys and of their scales and norms.
__device__ __forceinline__ void copy_unit(const StationaryParams& params, StreamShared& shared,
                                          int buffer, int unit) {
  constexpr int kPieces = StreamConfig::kRowBytes / 16;
  const int thread = static_cast<int>(threadIdx.x);
  const CodeRows& rows = params.key_rows;
  const uint32_t target = shared_address(shared.keys[buffer]);
  const int64_t first = static_cast<int64_t>(unit) * kUnitKeys;
#pragma unroll
  for (int i = thread; i < kUnitKeys * kPieces; i += StreamConfig::kThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    const bool valid = first + row < rows.rows && piece * 16 < rows.width;
    const uint8_t* const source = rows.codes + (first + row) * rows.stride + piece * 16;
    copy_async_16(target + row * StreamConfig::kRowBytes + (piece ^ (row & 7)) * 16,
                  valid ? source : rows.codes, valid);
  }
  if (thread < kUnitKeys / 2) {
    copy_async_16(shared_address(&shared.meta[buffer][2 * thread]),
                  params.key_meta + first + 2 * thread, true);
  }
  copy_async_commit();
}

/// All keys of one segment against this warp's columns.
template <class Path, class Epilogue>
__device__ __forceinline__ void stream_segment(const typename Epilogue::Params& params,
                                               StreamShared& shared, const Segment& segment,
                                               uint32_t& filled) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const KeyOrder order = params.round.orders[segment.block];
  int unit = unit_at(order, segment.begin);
  copy_unit(params, shared, filled % StreamConfig::kBuffers, unit);
  Columns<Path, Epilogue::kTiles, Epilogue::kDecoded> columns;
  const int64_t first = static_cast<int64_t>(segment.block) * params.round.columns + segment.column;
  columns.load(params.column_rows, (first * StreamConfig::kWarps + warp) * 8 * Epilogue::kTiles);
  Epilogue epilogue;
  epilogue.begin_segment(params, segment, warp);
  for (int i = 0; i < segment.count; ++i, ++filled) {
    const int buffer = static_cast<int>(filled % StreamConfig::kBuffers);
    copy_async_wait<0>();
    __syncthreads();  // this unit is there for all, and all are done with the one before
    KeyPair pair;
    pair.place = segment.begin + i;
    const int unit_key = unit * kUnitKeys;
    if (i + 1 < segment.count) {
      unit = unit_at(order, segment.begin + i + 1);
      copy_unit(params, shared, buffer ^ 1, unit);
    }
    const uint32_t keys = shared_address(shared.keys[buffer]);
#pragma unroll 1
    for (int row = 0; row < kUnitKeys; row += 16) {
      uint32_t words[2][kWordsPerRow];
      load_key_words(keys + row * StreamConfig::kRowBytes, words);
      pair.unit_row = row + lane / 4;
      pair.key = unit_key + pair.unit_row;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 meta = shared.meta[buffer][pair.unit_row + 8 * half];
        pair.scale[half] = meta.x;
        pair.norm[half] = meta.y;
      }
      epilogue.template score<Path>(params, segment, columns, Path::decode(words), pair);
    }
  }
  epilogue.end_segment(params);
}

template <class Path, class Epilogue>
__global__ void __launch_bounds__(StreamConfig::kThreads, 1)
    stream_mma_kernel(const __grid_constant__ typename Epilogue::Params params) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<StreamShared*>(shared_bytes);
  if (params.chosen != nullptr && *params.chosen != params.variant) return;
  if (threadIdx.x < 32) shared.split.prepare(params.round);
  __syncthreads();
  const int64_t total = shared.split.total(params.round);
  int64_t from = total * blockIdx.x / gridDim.x;
  const int64_t to = total * (blockIdx.x + 1) / gridDim.x;
  uint32_t filled = 0;
  while (from < to) {
    const Segment segment = shared.split.at(params.round, from, to);
    stream_segment<Path, Epilogue>(params, shared, segment, filled);
    from += segment.count;
  }
}

/// Launches a kernel of this shape with one CTA per multiprocessor.
/// Epilogue::kTiles x 8 columns belong to a warp, kept decoded or not.
template <class Path, class Epilogue>
cudaError_t launch_stream_mma(const typename Epilogue::Params& params, int multiprocessors,
                              cudaStream_t stream) {
  constexpr int kColumns = StreamConfig::kWarps * 8 * Epilogue::kTiles;
  static_assert(kBlockRows * Epilogue::kRowColumns % kColumns == 0, "blocks are whole CTAs");
  auto launch = params;
  launch.round.columns = kBlockRows * Epilogue::kRowColumns / kColumns;
  const auto kernel = stream_mma_kernel<Path, Epilogue>;
  constexpr int kBytes = sizeof(StreamShared);
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<multiprocessors, StreamConfig::kThreads, kBytes, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace dosa::gpu
