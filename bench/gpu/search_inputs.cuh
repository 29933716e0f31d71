// SPDX-License-Identifier: Apache-2.0
// Problems made on the device in which a wrong bound would show: random ones, and one for each way
// in which computed products and sums part from exact ones.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device_inputs.cuh"

namespace dosa::bench {

enum Model : int {
  kNormal,      // rounded normal values, most weights negative
  kUniform,     // every finite code
  kCliffs,      // a peak in every k-step, the rest 0 to 15 binades below
  kTop,         // +-448 everywhere, keys with few signs changed
  kCodes,       // subnormal codes and the lowest binade, few large
  kIntegers,    // small integers: ties and plateaus
  kZeros,       // most heads are zero vectors or weigh nothing
  kAggregated,  // negative heads whose peaks cancel in each of them; trap keys hide all the rest
  kParallel,    // positive heads that are multiples of each other: rests are zero, cuts are not
  kLate,        // the same with the peaks in the last k-step, where no partial sum sees them
  kCancelling,  // few heads in nearly opposite pairs: all retained, sums lose most of their bits
  kUnderflow,   // the same with subnormal weights, products and scores
  kScales,      // huge, tiny, zero, negative, subnormal, infinite and NaN scales
  kModels
};

constexpr const char* kModelNames[kModels] = {
    "normal",     "uniform",  "cliffs", "top",        "codes",     "integers", "zeros",
    "aggregated", "parallel", "late",   "cancelling", "underflow", "scales"};

/// One problem's inputs as functions of the position.
struct SearchInputs {
  Model model;
  uint64_t seed;
  int heads;

  static constexpr int kDim = 128;
  static constexpr int kStep = 32;       // coordinates of a k-step
  static constexpr int kTrapShare = 64;  // one key in so many is a trap

  __device__ uint64_t bits(int stream, int64_t at) const {
    return mix(seed ^ mix(static_cast<uint64_t>(stream) << 56 ^ static_cast<uint64_t>(at)));
  }
  static __device__ float unit(uint64_t bits) {
    return static_cast<float>(static_cast<uint32_t>(bits >> 20)) * 0x1p-32f;
  }
  static __device__ uint8_t encode(float value) {
    return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
  }
  static __device__ uint8_t finite(uint64_t bits) {
    const auto code = static_cast<uint8_t>(bits >> 11);
    return (code & 0x7f) == 0x7f ? static_cast<uint8_t>(code - 1) : code;
  }
  __device__ float gauss(int stream, int64_t at) const { return normal(bits(stream, at)); }
  /// 2^0 .. 2^-(range - 1) at random
  static __device__ float binade(uint64_t bits, int range) {
    return ldexpf(1.0f, -static_cast<int>(bits >> 33) % range);
  }
  /// The first coordinate of the first or of the last k-step.
  __device__ int peak_at() const { return model == kLate ? kDim - kStep : 0; }
  __device__ bool trap(int64_t key) const { return bits(9, key) % kTrapShare == 0; }

  __device__ uint8_t query(int64_t row, int head, int d) const {
    const int64_t vector = row * heads + head;
    const uint64_t own = bits(1, vector * kDim + d);
    const float sign = (own & 1) != 0 ? 1.0f : -1.0f;
    switch (model) {
      case kUniform:
        return finite(own);
      case kCliffs:
        return encode(sign *
                      (d % kStep == static_cast<int>(row % 4) ? 448.0f : 384.0f * binade(own, 16)));
      case kTop:
        return encode((bits(2, vector) % 2 == 0 || d % 7 != head % 7 ? 1.0f : sign) * 448.0f);
      case kCodes:
        return own % 37 == 0 ? finite(own >> 8)
                             : static_cast<uint8_t>((own >> 40 & 0x80) | (own >> 20 & 0xf));
      case kIntegers:
        return encode(static_cast<float>(static_cast<int>(own >> 13 & 7) - 3));
      case kZeros:
        return bits(2, vector) % 4 != 0 ? static_cast<uint8_t>(own & 0x80)
                                        : encode(60.0f * gauss(1, vector * kDim + d));
      case kAggregated: {
        // Peaks of opposite signs at the first two coordinates of a step; every other head turns
        // them round, so that the aggregate of all has none.
        const float peak =
            (head % 2 == 0 ? 1.0f : -1.0f) * (bits(2, row) % 3 == 0 ? 256.0f : 448.0f);
        if (d % kStep < 2) return encode(d % kStep == 0 ? peak : -peak);
        return encode(own % 5 == 0 ? 1.75f : 2.0f);
      }
      case kParallel:
      case kLate: {
        // The lighter heads are 1.5 times the heavier ones, of which they leave nothing.
        const bool light = head >= heads / 2;
        if (d < peak_at()) return 0;
        const float peak =
            d == peak_at() ? 256.0f : 1.5f * (bits(3, row * kDim + d) % 8 == 0 ? 0.5f : 1.0f);
        return encode(light ? 1.5f * peak : peak);
      }
      case kCancelling:
      case kUnderflow: {
        const int64_t pair = row * heads + head / 2;  // two heads are alike but for one coordinate
        const bool changed = head % 2 == 1 && d == static_cast<int>(bits(2, pair) % kDim);
        return encode(60.0f * (changed ? gauss(4, vector) : gauss(1, pair * kDim + d)));
      }
      default:
        return encode(60.0f * gauss(1, vector * kDim + d));
    }
  }

  __device__ uint8_t key_code(int64_t key, int d) const {
    const uint64_t own = bits(5, key * kDim + d);
    const float sign = (own & 1) != 0 ? 1.0f : -1.0f;
    switch (model) {
      case kUniform:
        return finite(own);
      case kCliffs:
        return encode(sign *
                      (d % kStep == static_cast<int>(key % 5) ? 448.0f : 384.0f * binade(own, 16)));
      case kTop:
        return encode((own % 16 == 0 ? -448.0f : 448.0f));
      case kCodes:
        return own % 31 == 0 ? finite(own >> 8)
                             : static_cast<uint8_t>((own >> 40 & 0x80) | (own >> 20 & 0xf));
      case kIntegers:
        return encode(static_cast<float>(static_cast<int>(own >> 13 & 7) - 3));
      case kAggregated: {
        const float peak = bits(6, key) % 3 == 0 ? 256.0f : 448.0f;
        const bool hides = trap(key);
        if (d % kStep < 2) return encode(hides ? peak : 1.0f);
        return encode(own % 9 == 0 ? 3.0f : 3.5f);
      }
      case kParallel:
      case kLate:
        if (d == peak_at()) return encode(trap(key) ? 256.0f : 256.0f * binade(bits(6, key), 6));
        return encode((own % 16 == 0 ? sign : 1.0f) * 4.0f);
      case kUnderflow:
        return encode(own % 19 == 0 ? sign * 0x1p-7f : 0.0f);
      default:
        return encode(60.0f * gauss(5, key * kDim + d));
    }
  }

  __device__ float weight(int64_t row, int head) const {
    const uint64_t own = bits(7, row * heads + head);
    const float size = 0.01f * (0.2f + fabsf(gauss(7, row * heads + head)));
    switch (model) {
      case kIntegers:
        return 0.125f * static_cast<float>(static_cast<int>(own >> 9 & 63) - 40);
      case kZeros:
        return own % 3 == 0 ? 0.0f : (own % 5 == 0 ? size : -size);
      case kAggregated:
        return head == 0 && row % 2 == 0 ? 0x1p-10f : -0.25f;
      case kParallel:
      case kLate:
        return head >= heads / 2 ? 0.25f : 1.0f;
      case kCancelling: {
        if (head >= 6) return 0.0f;
        const float pair = 1.0f + unit(bits(8, row * heads + head / 2));
        return head % 2 == 0 ? pair : -pair * (1.0f - 0x1p-12f * unit(own));
      }
      case kUnderflow: {
        if (head >= 6) return 0.0f;
        const float units = static_cast<float>(1 + static_cast<int>(own >> 7 & 63));
        const float least = row % 2 == 0 ? 0x1p-149f : 0x1p-26f;
        return (head % 2 == 0 ? units : -units) * least;
      }
      case kScales: {
        const float size_of_row[] = {0x1p70f, 0x1p50f, 0x1p-60f, 1.0f};
        return (own % 4 == 0 ? size : -size) * size_of_row[row % 4];
      }
      default:
        return own % 4 == 0 ? size : -size;
    }
  }

  __device__ float scale(int64_t key) const {
    const uint64_t own = bits(8, key);
    switch (model) {
      case kAggregated:
      case kParallel:
      case kLate:
        return 0x1p-10f;
      case kIntegers:
        return ldexpf(1.0f, static_cast<int>(own >> 17 & 3));
      case kUnderflow:
        return key % 2 == 0 ? 0x1p40f * (1.0f + unit(own)) : 0x1p-126f * (1.0f + unit(own));
      case kScales: {
        const float odd[] = {0.0f,
                             -0.01f,
                             0x1p-130f,
                             __int_as_float(0x7f800000),
                             __int_as_float(0x7fffffff),
                             -0.0f,
                             -__int_as_float(0x7f800000),
                             -0x1p-130f};
        if (own % 8 == 0) return odd[own >> 20 & 7];
        return ldexpf(1.0f + unit(own), static_cast<int>(own >> 40 & 127) - 27);
      }
      default:
        return 0.01f * expf(0.3f * gauss(8, key));
    }
  }
};

static __global__ void fill_search_queries(SearchInputs inputs, uint8_t* q, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t vector = at / SearchInputs::kDim;
  q[at] = inputs.query(vector / inputs.heads, static_cast<int>(vector % inputs.heads),
                       static_cast<int>(at % SearchInputs::kDim));
}

static __global__ void fill_search_keys(SearchInputs inputs, uint8_t* k, float* scales,
                                        int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t key = at / SearchInputs::kDim;
  k[at] = inputs.key_code(key, static_cast<int>(at % SearchInputs::kDim));
  if (at % SearchInputs::kDim == 0) scales[key] = inputs.scale(key);
}

static __global__ void fill_search_weights(SearchInputs inputs, float* weights, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  if (at < count) {
    weights[at] = inputs.weight(at / inputs.heads, static_cast<int>(at % inputs.heads));
  }
}

/// Fills a problem that was made for this number of heads.
inline void fill_search(const DeviceProblem& to, const SearchInputs& inputs) {
  const int64_t queries = to.problem.num_queries * inputs.heads * SearchInputs::kDim;
  const int64_t keys = to.problem.num_keys * SearchInputs::kDim;
  const int64_t weights = to.problem.num_queries * inputs.heads;
  fill_search_queries<<<ctas(queries), kFillThreads>>>(inputs, to.q, queries);
  DOSA_CUDA(cudaGetLastError());
  fill_search_keys<<<ctas(keys), kFillThreads>>>(inputs, to.k, to.k_scale, keys);
  DOSA_CUDA(cudaGetLastError());
  fill_search_weights<<<ctas(weights), kFillThreads>>>(inputs, to.weights, weights);
  DOSA_CUDA(cudaGetLastError());
}

}  // namespace dosa::bench
