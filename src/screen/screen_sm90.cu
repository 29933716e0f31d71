// SPDX-License-Identifier: Apache-2.0
// Screening: A = 64 keys, B = queries of R' rows, bound and comparison in the epilogue.
#include "screen/screen_sm90.cuh"

#include "gpu/stationary_sm90.cuh"

namespace dosa::screen {
namespace {

template <int kScreenRows_, Sink kSink_>
struct Config {
  static constexpr Sink kSink = kSink_;
  static constexpr int kScreenRows = kScreenRows_;
  static constexpr int kRetained = kScreenRows - plan::ScreenLayout::kAuxiliaryRows;
  static constexpr int kTileColumns = plan::ScreenLayout::tile_columns(kScreenRows);
  static constexpr int kTileQueries = plan::ScreenLayout::tile_queries(kScreenRows);
  static constexpr int kSlots = kTileQueries / 4;  // queries of one lane class in a tile
  static constexpr int kColumnQueries = kTileQueries * gpu::StationaryConfig::kColumnTiles;
  static constexpr int kColumns = gpu::kBlockRows / kColumnQueries;
  static constexpr int kWords = mask_words(kScreenRows);  // of one warp, tile and 64 keys
  static_assert(kWords == 2 * kSlots, "a word for each half and slot");
  static constexpr int kStride = kScreenRows + plan::ScreenLayout::kExtra;
  static constexpr bool kTakesOff = plan::ScreenLayout::takes_off(kScreenRows);
  static_assert(kScreenRows % 8 == 0, "slots are whole");
  static_assert(kColumns * kColumnQueries == gpu::kBlockRows, "blocks are whole column tiles");
};

template <class C>
struct Epilogue {
  using Params = ScreenParams;
  static constexpr int kTileColumns = C::kTileColumns;
  using Products = float[kTileColumns / 2];
  struct Shared {
    float4 terms[C::kTileQueries];  // E, G, coefficients of the aggregate's rows
    float threshold[C::kTileQueries];
  };

  float weights[C::kSlots][C::kRetained];  // of this lane class's queries
  int first_word;                          // of this warp's survivor words in a unit
  uint32_t word;                           // the one that this lane keeps

  __device__ __forceinline__ void begin_segment(const Params& params, Shared& shared,
                                                const gpu::Segment& segment, int tile) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int in_block = segment.column * C::kColumnQueries + tile * C::kTileQueries;
    first_word = thread / 32 * 128 + (segment.column * 4 + tile) * 4 * C::kWords;
    word = 0;
#pragma unroll
    for (int slot = 0; slot < C::kSlots; ++slot) {
      const int row = segment.block * gpu::kBlockRows + in_block + 4 * slot +
                      (static_cast<int>(threadIdx.x) & 3);
      const float* const coefficients =
          params.coefficients + static_cast<int64_t>(row) * C::kStride;
#pragma unroll
      for (int i = 0; i < C::kRetained; ++i) weights[slot][i] = coefficients[i];
    }
    if (thread < C::kTileQueries) {
      const int row = segment.block * gpu::kBlockRows + in_block + thread;
      const float* const rest =
          params.coefficients + static_cast<int64_t>(row) * C::kStride + C::kRetained;
      shared.terms[thread] = make_float4(rest[2], rest[3], rest[0], rest[1]);
      shared.threshold[thread] = params.rows.bound_floor[row];
    }
  }

  /// The aggregate's computed dot product less what must be taken off it.
  static __device__ __forceinline__ float aggregate(const Products& products, const float4& terms,
                                                    float taken, int slot, int half) {
    const int last = slot * C::kScreenRows / 2 + C::kRetained / 2;
    const float* const pair = products + 4 * last + 2 * half;
    return __fmaf_rn(pair[0], terms.z, __fmaf_rn(pair[1], terms.w, -taken));
  }

  /// U = (sum_R w~ [x]+ + E n(k) - [y - G n(k)]+) * scale (E6, S16).
  __device__ __forceinline__ float bound(const Products& products, const float4& terms, int slot,
                                         int half, const gpu::KeyPair& keys) const {
    const int first = slot * C::kScreenRows / 2;
    float even = __fmul_rn(terms.x, keys.norm[half]);
    float odd = 0.0f;
#pragma unroll
    for (int row = 0; row < C::kRetained; row += 2) {
      const float* const pair = products + 4 * (first + row / 2) + 2 * half;
      even = __fmaf_rn(fmaxf(pair[0], 0.0f), weights[slot][row], even);
      odd = row == 0 ? __fmul_rn(fmaxf(pair[1], 0.0f), weights[slot][row + 1])
                     : __fmaf_rn(fmaxf(pair[1], 0.0f), weights[slot][row + 1], odd);
    }
    const float taken = C::kTakesOff ? __fmul_rn(terms.y, keys.norm[half]) : 0.0f;
    const float y = aggregate(products, terms, taken, slot, half);
    return __fmul_rn(__fsub_rn(__fadd_rn(even, odd), fmaxf(y, 0.0f)), keys.scale[half]);
  }

  __device__ __forceinline__ void finish(const Params& params, const Shared& shared,
                                         const gpu::Segment& segment, const Products& products,
                                         const gpu::KeyPair& keys) {
    if constexpr (C::kSink == Sink::kStore) {
      store(params, shared, segment, products, keys);
    } else {
      vote(params, shared, segment, products, keys);
    }
  }

  __device__ __forceinline__ void vote(const Params& params, const Shared& shared,
                                       const gpu::Segment& segment, const Products& products,
                                       const gpu::KeyPair& keys) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int in_unit = keys.unit_row / 64;
#pragma unroll
    for (int slot = 0; slot < C::kSlots; ++slot) {
      const float4 terms = shared.terms[4 * slot + (lane & 3)];
      const float threshold = shared.threshold[4 * slot + (lane & 3)];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float value = bound(products, terms, slot, half, keys);
        // Rejected only by U < threshold: a NaN survives.
        const uint32_t survivors = __ballot_sync(0xffffffffu, !(value < threshold));
        if (lane == in_unit * C::kWords + slot * 2 + half) word = survivors;
      }
    }
    if (in_unit != gpu::StationaryConfig::kSubTiles - 1) return;
    const int64_t unit =
        static_cast<int64_t>(segment.block) * params.mask_units + keys.place - params.round.begin;
    if (lane < 4 * C::kWords) params.masks[unit * kMaskWords + first_word + lane] = word;
  }

  __device__ __forceinline__ void store(const Params& params, const Shared& shared,
                                        const gpu::Segment& segment, const Products& products,
                                        const gpu::KeyPair& keys) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int slot = 0; slot < C::kSlots; ++slot) {
      const int in_tile = 4 * slot + (lane & 3);
      const int row = segment.block * gpu::kBlockRows + segment.column * C::kColumnQueries +
                      static_cast<int>(threadIdx.x) / 128 * C::kTileQueries + in_tile;
      if (row >= params.rows.rows) continue;
      const bool proven = (params.rows.flags[row] & numeric::kRowRecover) == 0;
      const float4 terms = shared.terms[in_tile];
      float2* const out = params.bounds + row * params.bounds_stride;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = keys.key + 8 * half;
        if (key >= params.num_keys) continue;
        const float value = bound(products, terms, slot, half, keys);
        const float norm = keys.norm[half];
        const float whole = fmaxf(aggregate(products, terms, 0.0f, slot, half), 0.0f);
        const float less = fmaxf(aggregate(products, terms, terms.y * norm, slot, half), 0.0f);
        out[key] = make_float2(proven ? value : __int_as_float(0x7fffffff),
                               __fmul_rn(terms.x * norm + (whole - less), keys.scale[half]));
      }
    }
  }

  __device__ void end_segment(const Params&) {}
};

template <int kScreenRows, Sink kSink>
cudaError_t launch_rows(const ScreenParams& params, int multiprocessors, cudaStream_t stream) {
  using Chosen = Config<kScreenRows, kSink>;
  ScreenParams launch = params;
  launch.round.columns = Chosen::kColumns;
  return gpu::launch_stationary_sm90<Epilogue<Chosen>>(launch, multiprocessors, stream);
}

template <Sink kSink>
cudaError_t launch_width(const ScreenParams& params, int screen_rows, int multiprocessors,
                         cudaStream_t stream) {
  switch (screen_rows) {
    case 8:
      return launch_rows<8, kSink>(params, multiprocessors, stream);
    case 16:
      return launch_rows<16, kSink>(params, multiprocessors, stream);
    case 24:
      return launch_rows<24, kSink>(params, multiprocessors, stream);
    case 32:
      return launch_rows<32, kSink>(params, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_screen_sm90(const ScreenParams& params, int screen_rows, int multiprocessors,
                               cudaStream_t stream) {
  return launch_width<Sink::kVote>(params, screen_rows, multiprocessors, stream);
}

cudaError_t launch_bounds_sm90(const ScreenParams& params, int screen_rows, int multiprocessors,
                               cudaStream_t stream) {
  return launch_width<Sink::kStore>(params, screen_rows, multiprocessors, stream);
}

}  // namespace dosa::screen
