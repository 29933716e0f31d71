// SPDX-License-Identifier: Apache-2.0
// Screening: A = 64 keys, B = 128 / R' queries of R' rows, bound and comparison in the epilogue.
#include "screen/screen_sm90.cuh"

namespace dosa::screen {
namespace {

template <int kScreenRows_>
struct Config {
  static constexpr int kScreenRows = kScreenRows_;
  static constexpr int kRetained = kScreenRows - plan::ScreenLayout::kAuxiliaryRows;
  static constexpr int kTileQueries = 128 / kScreenRows;
  static constexpr int kSlots = kTileQueries / 4;  // queries of one lane class in a tile
  static constexpr int kColumnQueries = kTileQueries * gpu::StationaryConfig::kColumnTiles;
  static constexpr int kColumns = gpu::kBlockRows / kColumnQueries;
  static constexpr int kWords = gpu::StationaryConfig::kColumnTiles * kSlots * 2;  // of one warp
  static constexpr int kStride = kScreenRows + plan::ScreenLayout::kExtra;
  static_assert(kScreenRows % 8 == 0, "coefficients are read four at a time");
  static_assert(kColumns * kColumnQueries == gpu::kBlockRows, "blocks are whole column tiles");
  static_assert(kWords <= 32, "each word has its lane");
};

template <class C>
struct SharedRows {
  // The stride R' + 4 keeps the four lane classes in different banks.
  alignas(16) float coefficients[C::kColumnQueries][C::kStride];
};

template <class C>
struct Epilogue {
  using Params = ScreenParams;
  using Shared = SharedRows<C>;
  static constexpr int kThreads = gpu::StationaryConfig::kConsumerThreads;

  uint32_t word;  // this lane's survivor word of the current 64 keys

  __device__ void load_rows(const Params& params, Shared& shared, const gpu::Segment& segment,
                            int thread) {
    const int first_row = segment.block * gpu::kBlockRows + segment.column * C::kColumnQueries;
    for (int i = thread; i < C::kColumnQueries * C::kStride; i += kThreads) {
      const int query = i / C::kStride;
      const int at = i % C::kStride;
      const int row = first_row + query;
      float value = params.coefficients[static_cast<int64_t>(row) * C::kStride + at];
      if (at == C::kScreenRows + 1) value = params.rows.bound_floor[row];
      shared.coefficients[query][at] = value;
    }
    word = 0;
  }

  /// U = (sum_R w~ [x]+ + E |k| - [y]+) * scale (E6); rejected only by U < threshold.
  static __device__ __forceinline__ bool survives(const float (&products)[64],
                                                  const float (&weights)[C::kStride], int slot,
                                                  int half, const gpu::KeyPair& keys) {
    const int first = slot * C::kScreenRows / 2;
    const float allowance = weights[C::kScreenRows];
    const float threshold = weights[C::kScreenRows + 1];
    float even = __fmul_rn(allowance, keys.norm[half]);
    float odd = 0.0f;
#pragma unroll
    for (int row = 0; row < C::kRetained; row += 2) {
      const float* const pair = products + 4 * (first + row / 2) + 2 * half;
      even = __fmaf_rn(fmaxf(pair[0], 0.0f), weights[row], even);
      odd = __fmaf_rn(fmaxf(pair[1], 0.0f), weights[row + 1], odd);
    }
    const float* const pair = products + 4 * (first + C::kRetained / 2) + 2 * half;
    const float aggregate =
        __fmaf_rn(pair[0], weights[C::kRetained],
                  __fmul_rn(pair[1], weights[C::kRetained + 1]));
    const float payload = __fsub_rn(__fadd_rn(even, odd), fmaxf(aggregate, 0.0f));
    return !(__fmul_rn(payload, keys.scale[half]) < threshold);
  }

  template <int kTile>
  __device__ __forceinline__ void tile(const Params&, const Shared& shared,
                                       const float (&products)[64], const gpu::KeyPair& keys) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int slot = 0; slot < C::kSlots; ++slot) {
      const int query = kTile * C::kTileQueries + 4 * slot + (lane & 3);
      float weights[C::kStride];
#pragma unroll
      for (int i = 0; i < C::kStride; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&shared.coefficients[query][i]);
        weights[i] = four.x;
        weights[i + 1] = four.y;
        weights[i + 2] = four.z;
        weights[i + 3] = four.w;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t survivors =
            __ballot_sync(0xffffffffu, survives(products, weights, slot, half, keys));
        if (lane == (kTile * C::kSlots + slot) * 2 + half) word = survivors;
      }
    }
  }

  __device__ __forceinline__ void finish(const Params& params, Shared&, const gpu::Segment& segment,
                                         const gpu::KeyPair& keys) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = keys.unit_row / 16;
    const int64_t unit = static_cast<int64_t>(segment.block) * params.mask_units + keys.place -
                         params.round.begin;
    if (lane < C::kWords) {
      params.masks[(unit * 16 + warp) * 32 + segment.column * C::kWords + lane] = word;
    }
  }

  __device__ void end_segment(const Params&, Shared&, const gpu::Segment&) {}
};

template <int kScreenRows>
cudaError_t launch_rows(const ScreenParams& params, int multiprocessors, cudaStream_t stream) {
  ScreenParams launch = params;
  launch.round.columns = Config<kScreenRows>::kColumns;
  return gpu::launch_stationary_sm90<Epilogue<Config<kScreenRows>>>(launch, multiprocessors,
                                                                    stream);
}

}  // namespace

cudaError_t launch_screen_sm90(const ScreenParams& params, int screen_rows, int multiprocessors,
                               cudaStream_t stream) {
  switch (screen_rows) {
    case 8:
      return launch_rows<8>(params, multiprocessors, stream);
    case 16:
      return launch_rows<16>(params, multiprocessors, stream);
    case 32:
      return launch_rows<32>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::screen
