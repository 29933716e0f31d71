// SPDX-License-Identifier: Apache-2.0
//
// A family of models of one k-step, each compared with what the tensor core returned.
#include "gpu/probe.cuh"

namespace dosa::gpu {
namespace {

using Wide = long long;

constexpr int kNoExponent = -1000;

/// value * 2^-shift; mode 0 toward zero, 1 down, 2 nearest even.
__device__ Wide shift_round(Wide value, int shift, int mode) {
  if (shift <= 0) return value << (shift < -40 ? 40 : -shift);
  if (shift > 62) return mode == 1 && value < 0 ? -1 : 0;
  if (mode == 1) return value >> shift;
  const Wide magnitude = value < 0 ? -value : value;
  Wide kept = magnitude >> shift;
  if (mode == 2) {
    const Wide rest = magnitude - (kept << shift);
    const Wide half = 1LL << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  }
  return value < 0 ? -kept : kept;
}

/// A finite number significand * 2^exponent.
struct Term {
  Wide significand;
  int exponent;  // of the lowest bit of significand
  int top;       // exponent used for alignment
};

__device__ int bit_length(Wide magnitude) { return 64 - __clzll(magnitude); }

__device__ Term operand(std::uint8_t code, int rule) {
  const int field = (code >> 3) & 15;
  const int low = code & 7;
  const Wide magnitude = field == 0 ? low : low + 8;
  int top = (field == 0 ? 1 : field) - 7;
  const int exponent = top - 3;
  if (rule == 2 && magnitude != 0) top = exponent + bit_length(magnitude) - 1;
  return {(code & 0x80) != 0 ? -magnitude : magnitude, exponent, top};
}

__device__ Term product(std::uint8_t a, std::uint8_t b, int rule) {
  const Term x = operand(a, rule);
  const Term y = operand(b, rule);
  Term p{x.significand * y.significand, x.exponent + y.exponent, x.top + y.top};
  if (p.significand == 0 && rule != 1) p.top = kNoExponent;
  if (rule == 3 && p.significand != 0) {
    const Wide magnitude = p.significand < 0 ? -p.significand : p.significand;
    p.top = p.exponent + bit_length(magnitude) - 1;
  }
  return p;
}

__device__ Term unpack(std::uint32_t bits) {
  const int field = static_cast<int>((bits >> 23) & 0xffU);
  const Wide magnitude = static_cast<Wide>(bits & 0x7fffffU) | (field == 0 ? 0 : 0x800000);
  const int top = (field == 0 ? 1 : field) - 127;
  return {(bits >> 31) != 0 ? -magnitude : magnitude, top - 23, magnitude == 0 ? kNoExponent : top};
}

__device__ std::uint32_t pack(Wide sum, int exponent, const Hypothesis& h) {
  if (sum == 0) return 0;
  const int length = bit_length(sum < 0 ? -sum : sum);
  const int drop = length - 1 - h.result_bits;
  Wide kept = drop > 0 ? shift_round(sum, drop, h.result_rounding) : sum;
  if (drop > 0) exponent += drop;
  if (kept == 0) return 0;
  // At most 24 bits remain, so the conversion and the scaling below are exact.
  return __float_as_uint(scalbnf(static_cast<float>(kept), exponent));
}

__device__ Wide align(const Term& term, int top, const Hypothesis& h) {
  if (term.significand == 0) return 0;
  return shift_round(term.significand, top - h.fraction_bits - term.exponent, h.align_rounding);
}

/// Position within the k-step of product i of the group that starts at `first`.
__device__ int group_position(const Hypothesis& h, int first, int i) {
  if (h.interleaved == 0) return first + i;
  return 4 * (i / 2) + i % 2 + (first == 0 ? 0 : 2);
}

__device__ std::uint32_t group_sum(const Hypothesis& h, const std::uint8_t* a,
                                   const std::uint8_t* b, int first, const Term& acc) {
  int top = acc.top;
  for (int i = 0; i < h.group; ++i) {
    const int k = group_position(h, first, i);
    top = max(top, product(a[k], b[k], h.exponent_rule).top);
  }
  if (top == kNoExponent) return 0;
  Wide sum = align(acc, top, h);
  for (int i = 0; i < h.group; ++i) {
    const int k = group_position(h, first, i);
    sum += align(product(a[k], b[k], h.exponent_rule), top, h);
  }
  return pack(sum, top - h.fraction_bits, h);
}

__device__ std::uint32_t hypothesis_step(const Hypothesis& h, const std::uint8_t* a,
                                         const std::uint8_t* b, std::uint32_t start) {
  const Term zero{0, 0, kNoExponent};
  std::uint32_t acc = h.joining == Joining::kChain ? 0U : start;
  for (int first = 0; first < kStepBytes; first += h.group) {
    if (h.joining == Joining::kAddEach) {
      const std::uint32_t sum = group_sum(h, a, b, first, zero);
      acc = __float_as_uint(__uint_as_float(acc) + __uint_as_float(sum));
    } else {
      acc = group_sum(h, a, b, first, unpack(acc));
    }
  }
  if (h.joining == Joining::kChain) {
    acc = __float_as_uint(__uint_as_float(start) + __uint_as_float(acc));
  }
  return acc;
}

struct SearchParams {
  const std::uint8_t* a;
  const std::uint8_t* b;
  const std::uint32_t* start;
  const std::uint32_t* result;
  const Hypothesis* hypotheses;
  double* counts;
  unsigned long long vectors;
  int tiles;
  int columns;
  unsigned give_up;
};

__device__ bool vector_differs(const SearchParams& params, const Hypothesis& h,
                               unsigned long long v) {
  // Consecutive vectors come from different tiles, hence different classes.
  const auto tile = static_cast<std::size_t>(v % params.tiles);
  const auto cell = static_cast<std::size_t>(v / params.tiles);
  const std::size_t row = cell / params.columns;
  const std::size_t column = cell % params.columns;
  const std::size_t at = tile * kTileRows * params.columns + cell;
  const std::uint32_t start = params.start == nullptr ? 0 : params.start[at];
  const std::uint32_t got = params.result[at];
  const std::uint32_t want =
      hypothesis_step(h, params.a + (tile * kTileRows + row) * kStepBytes,
                      params.b + (tile * params.columns + column) * kStepBytes, start);
  return got != want && ((got | want) & 0x7fffffffU) != 0;
}

__global__ void __launch_bounds__(256)
    probe_search_kernel(const __grid_constant__ SearchParams params) {
  __shared__ unsigned misses;
  const Hypothesis h = params.hypotheses[blockIdx.x];
  if (threadIdx.x == 0) misses = 0;
  __syncthreads();
  constexpr unsigned kChunk = 8 * 256;
  unsigned long long done = 0;
  while (done < params.vectors) {
    unsigned own = 0;
    for (unsigned i = threadIdx.x; i < kChunk && done + i < params.vectors; i += 256) {
      own += vector_differs(params, h, done + i) ? 1U : 0U;
    }
    if (own != 0) atomicAdd(&misses, own);
    done += kChunk;
    __syncthreads();
    const bool stop = misses > params.give_up;
    __syncthreads();
    if (stop) break;
  }
  const double share = done < params.vectors ? static_cast<double>(params.vectors) / done : 1.0;
  if (threadIdx.x == 0) params.counts[blockIdx.x] = misses * share;
}

}  // namespace

namespace {

void add_joinings(Hypothesis h, std::vector<Hypothesis>& grid) {
  for (const Joining joining : {Joining::kAddEach, Joining::kAligned, Joining::kChain}) {
    h.joining = joining;
    for (h.interleaved = 0; h.interleaved < (h.group == 16 ? 2 : 1); ++h.interleaved) {
      for (h.exponent_rule = 0; h.exponent_rule < 4; ++h.exponent_rule) grid.push_back(h);
    }
  }
}

}  // namespace

std::vector<Hypothesis> hypothesis_grid() {
  std::vector<Hypothesis> grid;
  for (int fraction = 10; fraction <= 30; ++fraction) {
    for (int align_rounding = 0; align_rounding < 3; ++align_rounding) {
      for (int result_bits : {10, 11, 12, 13, 14, 15, 16, 22, 23}) {
        for (int result_rounding = 0; result_rounding < 3; ++result_rounding) {
          for (int group : {4, 8, 16, 32}) {
            add_joinings({fraction, align_rounding, result_bits, result_rounding, group,
                          Joining::kAligned, 0, 0},
                         grid);
          }
        }
      }
    }
  }
  return grid;
}

std::vector<double> count_mismatches(const TileBatch& batch,
                                     const std::vector<Hypothesis>& hypotheses, unsigned give_up) {
  const DeviceBytes a(batch.a.size());
  const DeviceBytes b(batch.b.size());
  const DeviceBytes start(batch.start.size() * sizeof(std::uint32_t));
  const DeviceBytes result(batch.result.size() * sizeof(std::uint32_t));
  const DeviceBytes models(hypotheses.size() * sizeof(Hypothesis));
  const DeviceBytes counts(hypotheses.size() * sizeof(double));
  upload(a, batch.a);
  upload(b, batch.b);
  upload(start, batch.start);
  upload(result, batch.result);
  upload(models, hypotheses);
  SearchParams params{};
  params.a = a.as<std::uint8_t>();
  params.b = b.as<std::uint8_t>();
  params.start = batch.start.empty() ? nullptr : start.as<std::uint32_t>();
  params.result = result.as<std::uint32_t>();
  params.hypotheses = models.as<Hypothesis>();
  params.counts = counts.as<double>();
  params.vectors = batch.result.size();
  params.columns = batch.columns;
  params.tiles = static_cast<int>(batch.result.size() / (kTileRows * batch.columns));
  params.give_up = give_up;
  probe_search_kernel<<<static_cast<unsigned>(hypotheses.size()), 256>>>(params);
  check_cuda(cudaGetLastError(), "launch of the search kernel");
  check_cuda(cudaDeviceSynchronize(), "search kernel");
  std::vector<double> host(hypotheses.size());
  download(host, counts);
  return host;
}

}  // namespace dosa::gpu
