// SPDX-License-Identifier: Apache-2.0
// Screening with mma.sync: a warp keeps the R' rows of whole quads of queries, 64 columns for R' =
// 8 and 16, 96 or 128 for R' = 24 and 32.
#pragma once

#include "gpu/stationary_mma.cuh"
#include "screen/screen_sm90.cuh"

namespace dosa::screen {

template <int kScreenRows_, Sink kSink>
struct BoundEpilogue {
  using Params = ScreenParams;
  static constexpr int kScreenRows = kScreenRows_;
  static constexpr int kRowColumns = kScreenRows;
  static constexpr int kTiles = kScreenRows <= 16 ? 8 : kScreenRows / 2;
  static constexpr bool kDecoded = kTiles == 8;
  // Tiles whose products live at once: a quad of R' = 8 is bounded while the next is multiplied.
  static constexpr int kChunk = kScreenRows == 16 ? 8 : 4;
  static constexpr int kPairs = kScreenRows / 2;  // tiles of a quad; the last: aggregate
  static constexpr int kSlots = kTiles / kPairs;  // quads of a warp
  static constexpr int kStride = kScreenRows + plan::ScreenLayout::kExtra;
  static constexpr int kTileSlots = plan::ScreenLayout::tile_queries(kScreenRows) / 4;
  static constexpr int kWords = mask_words(kScreenRows);

  /// Of one quad's query of this lane's class.
  struct Query {
    float weights[kScreenRows];
    float allowance;  // E of plan_sm90.cuh
    float taken;      // G
    float threshold;
  };
  /// The sums of one quad while its tiles come in, for each of the two keys.
  struct Sums {
    float even[2];
    float odd[2];
    float aggregate[2];  // y - G n(k)
    float whole[2];      // y; only where bounds are stored
  };

  Query queries[kSlots];
  int first_quad;   // of the warp, in the block
  uint32_t* masks;  // this lane's first word of the segment's first unit
  int first_place;

  __device__ __forceinline__ void begin_segment(const Params& params, const gpu::Segment& segment,
                                                int warp) {
    first_quad = (segment.column * gpu::StreamConfig::kWarps + warp) * kSlots;
    if constexpr (kSink == Sink::kVote) begin_words(params, segment);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int row = row_of(segment, slot);
      const float* const in = params.coefficients + static_cast<int64_t>(row) * kStride;
      Query& query = queries[slot];
#pragma unroll
      for (int i = 0; i < kScreenRows; ++i) query.weights[i] = in[i];
      query.allowance = in[kScreenRows];
      query.taken = in[kScreenRows + 1];
      query.threshold = params.rows.bound_floor[row];
    }
  }

  __device__ __forceinline__ void begin_words(const Params& params, const gpu::Segment& segment) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int quad = first_quad + lane / 2;
    first_place = segment.begin;
    const int64_t unit =
        static_cast<int64_t>(segment.block) * params.mask_units + first_place - params.round.begin;
    masks = params.masks + unit * kMaskWords + quad / kTileSlots * 4 * kWords +
            quad % kTileSlots * 2 + lane % 2;
  }

  [[nodiscard]] __device__ __forceinline__ int row_of(const gpu::Segment& segment, int slot) const {
    return segment.block * gpu::kBlockRows + (first_quad + slot) * 4 +
           (static_cast<int>(threadIdx.x) & 3);
  }

  /// sum_R w~ [x]+ over even and odd rows, then y (E6): one tile holds a pair of rows.
  template <int kFirst>
  __device__ __forceinline__ void add(const float (&products)[kChunk][4], const gpu::KeyPair& keys,
                                      Sums (&sums)[kSlots]) const {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int slot = (kFirst + i) / kPairs;
      const int pair = (kFirst + i) % kPairs;
      const Query& query = queries[slot];
      Sums& sum = sums[slot];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float first = products[i][2 * half];
        const float second = products[i][2 * half + 1];
        const float first_weight = query.weights[2 * pair];
        const float second_weight = query.weights[2 * pair + 1];
        if (pair == kPairs - 1) {
          const float taken = __fmul_rn(query.taken, keys.norm[half]);
          sum.aggregate[half] =
              __fmaf_rn(first, first_weight, __fmaf_rn(second, second_weight, -taken));
          if constexpr (kSink == Sink::kStore) {
            sum.whole[half] = __fmaf_rn(first, first_weight, __fmul_rn(second, second_weight));
          }
          continue;
        }
        if (pair == 0) {
          sum.even[half] = __fmul_rn(query.allowance, keys.norm[half]);
        }
        sum.even[half] = __fmaf_rn(fmaxf(first, 0.0f), first_weight, sum.even[half]);
        const float product = fmaxf(second, 0.0f);
        sum.odd[half] = pair == 0 ? __fmul_rn(product, second_weight)
                                  : __fmaf_rn(product, second_weight, sum.odd[half]);
      }
    }
  }

  template <int kFirst, class Path, class Columns>
  __device__ __forceinline__ void run(const Columns& columns, const typename Path::Keys& codes,
                                      const gpu::KeyPair& keys, Sums (&sums)[kSlots]) const {
    if constexpr (kFirst < kTiles) {
      float products[kChunk][4];
      columns.template multiply<kFirst, kChunk>(codes, products);
      add<kFirst>(products, keys, sums);
      run<kFirst + kChunk, Path>(columns, codes, keys, sums);
    }
  }

  template <class Path, class Columns>
  __device__ __forceinline__ void score(const Params& params, const gpu::Segment& segment,
                                        const Columns& columns, const typename Path::Keys& codes,
                                        const gpu::KeyPair& keys) const {
    Sums sums[kSlots];
    run<0, Path>(columns, codes, keys, sums);
    uint32_t words[kSlots][2];
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Sums& sum = sums[slot];
        const float payload =
            __fsub_rn(__fadd_rn(sum.even[half], sum.odd[half]), fmaxf(sum.aggregate[half], 0.0f));
        const float bound = __fmul_rn(payload, keys.scale[half]);
        if constexpr (kSink == Sink::kStore) {
          const float taken = fmaxf(sum.whole[half], 0.0f) - fmaxf(sum.aggregate[half], 0.0f);
          store(params, segment, slot, half, bound, taken, keys);
        } else {
          // Rejected only by U < threshold: a NaN survives.
          words[slot][half] = __ballot_sync(0xffffffffu, !(bound < queries[slot].threshold));
        }
      }
    }
    if constexpr (kSink == Sink::kVote) write_words(words, keys);
  }

  /// Lane 2 slot + half writes that word.
  __device__ __forceinline__ void write_words(const uint32_t (&words)[kSlots][2],
                                              const gpu::KeyPair& keys) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    uint32_t word = words[0][0];
#pragma unroll
    for (int i = 1; i < 2 * kSlots; ++i) {
      if (lane == i) word = words[i / 2][i % 2];
    }
    const uint32_t group = static_cast<uint32_t>(keys.unit_row) / 16;  // of 16 keys
    const uint32_t at =
        (keys.place - first_place) * kMaskWords + group % 4 * 128 + group / 4 * kWords;
    if (lane < 2 * kSlots) masks[at] = word;
  }

  __device__ __forceinline__ void store(const Params& params, const gpu::Segment& segment, int slot,
                                        int half, float bound, float taken,
                                        const gpu::KeyPair& keys) const {
    const int row = row_of(segment, slot);
    const int key = keys.key + 8 * half;
    if (row >= params.rows.rows || key >= params.num_keys) return;
    const bool proven = (params.rows.flags[row] & numeric::kRowRecover) == 0;
    const float allowance = queries[slot].allowance * keys.norm[half] + taken;
    params.bounds[row * params.bounds_stride + key] = make_float2(
        proven ? bound : __int_as_float(0x7fffffff), __fmul_rn(allowance, keys.scale[half]));
  }

  __device__ void end_segment(const Params&) const {}
};

template <class Path, Sink kSink>
cudaError_t launch_width_mma(const ScreenParams& params, int screen_rows, int multiprocessors,
                             cudaStream_t stream) {
  switch (screen_rows) {
    case 8:
      return gpu::launch_stream_mma<Path, BoundEpilogue<8, kSink>>(params, multiprocessors, stream);
    case 16:
      return gpu::launch_stream_mma<Path, BoundEpilogue<16, kSink>>(params, multiprocessors,
                                                                    stream);
    case 24:
      return gpu::launch_stream_mma<Path, BoundEpilogue<24, kSink>>(params, multiprocessors,
                                                                    stream);
    case 32:
      return gpu::launch_stream_mma<Path, BoundEpilogue<32, kSink>>(params, multiprocessors,
                                                                    stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace dosa::screen
