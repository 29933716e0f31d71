// SPDX-License-Identifier: Apache-2.0
// Operands of mma.sync in registers, from e4m3 rows of 128 coordinates.
//
// A = 16 keys, B = tiles of 8 columns. Lane 4 g + c holds, of every 16 coordinates, the codes
// 4 c .. 4 c + 3 of keys g and g + 8 and of column g of each tile: what ldmatrix hands out. The
// coordinates of a product are summed in one order for A and B alike, which both paths choose so
// that these words need no shuffle: fp16 products take a word as coordinates 2 c, 2 c + 1 and
// 2 c + 8, 2 c + 9 of 16; e4m3 products take two words as coordinates 4 c .. and 16 + 4 c .. of 32.
#pragma once

#include <cstdint>

#include "gpu/code_rows.hpp"
#include "gpu/mma.cuh"

namespace dosa::gpu {

constexpr int kWordsPerRow = 8;  // of a lane: 128 coordinates / 16

/// `word`, to be decoded at each use. Where that takes seven instructions, compilers would rather
/// decode outside the loop and spill what they decoded.
__device__ __forceinline__ uint32_t decoded_here(uint32_t word) {
#if __CUDA_ARCH__ < 890
  asm volatile("" : "+r"(word));
#endif
  return word;
}

/// e4m3 decoded to fp16: eight products of 16 coordinates.
struct PathF16 {
  static constexpr int kSteps = 8;
  static constexpr int kDecodedWords = 16;  // of a column

  struct Keys {
    uint32_t a[kSteps][4];
  };

  static __device__ __forceinline__ Keys decode(const uint32_t (&words)[2][kWordsPerRow]) {
    Keys keys;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        keys.a[step][half] = decode_pair<0>(words[half][step]);
        keys.a[step][2 + half] = decode_pair<2>(words[half][step]);
      }
    }
    return keys;
  }

  static __device__ __forceinline__ void decode_column(const uint32_t (&words)[kWordsPerRow],
                                                       uint32_t (&decoded)[kDecodedWords]) {
#pragma unroll
    for (int i = 0; i < kWordsPerRow; ++i) {
      decoded[2 * i] = decode_pair<0>(words[i]);
      decoded[2 * i + 1] = decode_pair<2>(words[i]);
    }
  }

  static __device__ __forceinline__ void multiply(float (&products)[4], const Keys& keys, int step,
                                                  const uint32_t (&decoded)[kDecodedWords]) {
    mma_f16(products, keys.a[step], decoded[2 * step], decoded[2 * step + 1]);
  }

  static __device__ __forceinline__ void multiply(float (&products)[4], const Keys& keys, int step,
                                                  const uint32_t (&words)[kWordsPerRow]) {
    const uint32_t word = decoded_here(words[step]);
    mma_f16(products, keys.a[step], decode_pair<0>(word), decode_pair<2>(word));
  }
};

/// e4m3 as it is: four products of 32 coordinates.
struct PathFp8 {
  static constexpr int kSteps = 4;
  static constexpr int kDecodedWords = kWordsPerRow;

  struct Keys {
    uint32_t a[kSteps][4];
  };

  static __device__ __forceinline__ Keys decode(const uint32_t (&words)[2][kWordsPerRow]) {
    Keys keys;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        keys.a[step][half] = words[half][2 * step];
        keys.a[step][2 + half] = words[half][2 * step + 1];
      }
    }
    return keys;
  }

  static __device__ __forceinline__ void decode_column(const uint32_t (&words)[kWordsPerRow],
                                                       uint32_t (&decoded)[kDecodedWords]) {
#pragma unroll
    for (int i = 0; i < kWordsPerRow; ++i) decoded[i] = words[i];
  }

  static __device__ __forceinline__ void multiply(float (&products)[4], const Keys& keys, int step,
                                                  const uint32_t (&words)[kWordsPerRow]) {
    mma_e4m3(products, keys.a[step], words[2 * step], words[2 * step + 1]);
  }
};

/// Reads 16 keys of a tile in shared memory: rows of 128 bytes whose 16-byte pieces are swizzled by
/// the row (piece ^ row % 8). `tile` starts at a row that is a multiple of 8.
__device__ __forceinline__ void load_key_words(uint32_t tile, uint32_t (&words)[2][kWordsPerRow]) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row = lane & 15;
  const uint32_t line = tile + row * 128;
#pragma unroll
  for (int i = 0; i < kWordsPerRow; i += 2) {
    const int piece = (i + lane / 16) ^ (row & 7);
    load_matrices(line + piece * 16, words[0][i], words[1][i], words[0][i + 1], words[1][i + 1]);
  }
}

/// The columns that a warp keeps while keys stream past: kTiles tiles of 8. Decoded, they take
/// twice the registers and no conversion per product.
template <class Path, int kTiles, bool kDecoded>
struct Columns {
  static constexpr int kWords = kDecoded ? Path::kDecodedWords : kWordsPerRow;
  uint32_t words[kTiles][kWords];

  /// Columns first .. first + 8 kTiles - 1; those past the rows are zeros.
  __device__ __forceinline__ void load(const CodeRows& rows, int64_t first) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int64_t column = first + 8 * tile + lane / 4;
      const auto* const codes = reinterpret_cast<const uint32_t*>(
          rows.codes + (column < rows.rows ? column : 0) * rows.stride);
      uint32_t own[kWordsPerRow];
#pragma unroll
      for (int i = 0; i < kWordsPerRow; ++i) {
        own[i] = column < rows.rows ? __ldg(codes + 4 * i + lane % 4) : 0;
      }
      if constexpr (kDecoded) {
        Path::decode_column(own, words[tile]);
      } else {
#pragma unroll
        for (int i = 0; i < kWordsPerRow; ++i) words[tile][i] = own[i];
      }
    }
  }

  /// Dot products of 16 keys and tiles kFirst .. kFirst + kCount - 1: of key g + 8 half and column
  /// 2 c + e of a tile at [tile][2 half + e].
  template <int kFirst, int kCount>
  __device__ __forceinline__ void multiply(const typename Path::Keys& keys,
                                           float (&products)[kCount][4]) const {
#pragma unroll
    for (int tile = 0; tile < kCount; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[tile][i] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < Path::kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kCount; ++tile) {
        Path::multiply(products[tile], keys, step, words[kFirst + tile]);
      }
    }
  }
};

}  // namespace dosa::gpu
