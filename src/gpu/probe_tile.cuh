// SPDX-License-Identifier: Apache-2.0
//
// One 64 x N tile of products by one warpgroup: shared-memory layout, fragments, k-steps.
#ifndef DOSA_GPU_PROBE_TILE_CUH
#define DOSA_GPU_PROBE_TILE_CUH

#include <cstdint>

#include "gpu/probe_ptx.cuh"

namespace dosa::gpu {

inline constexpr int kTileRows = 64;                         // m of wgmma
inline constexpr int kTileThreads = 128;                     // one warpgroup
inline constexpr int kMaxDim = 128;                          // four k-steps
inline constexpr int kStepBytes = 32;                        // k of one FP8 step
inline constexpr int kCoreBytes = 128;                       // 8 rows x 16 bytes
inline constexpr int kRowBlock = kCoreBytes * kMaxDim / 16;  // 8 rows x 128 bytes
inline constexpr int kPlainStride = 132;  // row stride of the plain copy: no bank conflicts

/// Both operands twice: as core matrices for the tensor core, and row by row for the emulation.
template <int kColumns>
struct TileStorage {
  alignas(128) std::uint8_t a[kTileRows * kMaxDim];
  alignas(128) std::uint8_t b[kColumns * kMaxDim];
  alignas(16) std::uint8_t plain_a[kTileRows * kPlainStride];
  alignas(16) std::uint8_t plain_b[kColumns * kPlainStride];
};

__device__ inline int core_offset(int row, int k) {
  return (row / 8) * kRowBlock + (k / 16) * kCoreBytes + (row % 8) * 16 + k % 16;
}

/// Row of accumulator register i of this thread within the 64 x N tile.
__device__ inline int fragment_row(int i) {
  return static_cast<int>(threadIdx.x / 32) * 16 + static_cast<int>(threadIdx.x % 32) / 4 +
         8 * ((i / 2) % 2);
}

/// Column of accumulator register i of this thread within the 64 x N tile.
__device__ inline int fragment_column(int i) {
  return 8 * (i / 4) + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
}

__device__ inline std::uint32_t load_word(const std::uint8_t* bytes) {
  return *reinterpret_cast<const std::uint32_t*>(bytes);
}

/// A fragment of one k-step: four codes each of rows g and g + 8, halves 0 and 1 of the step.
__device__ inline void load_a_fragment(const std::uint8_t* plain, int step, std::uint32_t (&a)[4]) {
  const int row = fragment_row(0);
  const int k = step * kStepBytes + 4 * static_cast<int>(threadIdx.x % 4);
  a[0] = load_word(plain + row * kPlainStride + k);
  a[1] = load_word(plain + (row + 8) * kPlainStride + k);
  a[2] = load_word(plain + row * kPlainStride + k + 16);
  a[3] = load_word(plain + (row + 8) * kPlainStride + k + 16);
}

/// How the tile is multiplied.
enum class Route : int { kShared, kRegisters, kMmaSync };

/// acc[64 x N] (+)= A B^T over `steps` k-steps; the first one adds only if accumulate is set.
template <int kColumns>
__device__ inline void multiply_shared(const TileStorage<kColumns>& tile, int steps, int accumulate,
                                       float (&acc)[kColumns / 2]) {
  pin_registers(acc);
  wgmma_fence();
  for (int step = 0; step < steps; ++step) {
    const int offset = step * 2 * kCoreBytes;
    wgmma_e4m3(acc, wgmma_descriptor(tile.a + offset, kCoreBytes, kRowBlock),
               wgmma_descriptor(tile.b + offset, kCoreBytes, kRowBlock),
               step > 0 || accumulate != 0 ? 1 : 0);
  }
  wgmma_commit();
  wgmma_wait();
  pin_registers(acc);
}

__device__ inline void multiply_registers(const TileStorage<64>& tile, int steps, int accumulate,
                                          float (&acc)[32]) {
  for (int step = 0; step < steps; ++step) {
    std::uint32_t a[4];
    load_a_fragment(tile.plain_a, step, a);
    pin_registers(acc);
    wgmma_fence();
    wgmma_e4m3_a_registers(acc, a,
                           wgmma_descriptor(tile.b + step * 2 * kCoreBytes, kCoreBytes, kRowBlock),
                           step > 0 || accumulate != 0 ? 1 : 0);
    wgmma_commit();
    wgmma_wait();
    pin_registers(acc);
  }
}

__device__ inline void multiply_mma_sync(const TileStorage<64>& tile, int steps, int accumulate,
                                         float (&acc)[32]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int j = 0; j < 8; ++j) {
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = accumulate != 0 ? acc[4 * j + i] : 0.0F;
    for (int step = 0; step < steps; ++step) {
      std::uint32_t a[4];
      load_a_fragment(tile.plain_a, step, a);
      const std::uint8_t* row =
          tile.plain_b + (8 * j + lane / 4) * kPlainStride + step * kStepBytes + 4 * (lane % 4);
      const std::uint32_t b[2] = {load_word(row), load_word(row + 16)};
      mma_sync_e4m3(d, a, b);
    }
    for (int i = 0; i < 4; ++i) acc[4 * j + i] = d[i];
  }
}

}  // namespace dosa::gpu

#endif  // DOSA_GPU_PROBE_TILE_CUH
