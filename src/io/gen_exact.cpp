// SPDX-License-Identifier: Apache-2.0
#include "io/gen_exact.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "io/error.hpp"
#include "io/gen_draw.hpp"

namespace dosa::io {
namespace {

enum Stream : std::uint64_t { kQuery, kKey, kScale, kWeight, kShuffle };

// e4m3 codes: sign, 4 exponent bits (bias 7), 3 mantissa bits.
constexpr std::uint8_t kOne = 0x38;
constexpr std::uint8_t kMinusOne = 0xb8;
constexpr std::array<std::uint8_t, 5> kSmallIntegers = {0xc0, 0xb8, 0x00, 0x38, 0x40};  // -2 .. 2
constexpr std::uint64_t kFiniteMagnitudes = 127;  // 0x7f is NaN

std::size_t product(std::initializer_list<std::int64_t> extents) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) {
    if (extent < 0) {
      throw Error("shape", std::to_string(extent), "an extent of at least 0");
    }
    if (extent != 0 && count > kMost / extent) {
      throw Error("shape", "too many elements", "at most " + std::to_string(kMost));
    }
    count *= extent;
  }
  return static_cast<std::size_t>(count);
}

CounterRandom stream(const ExactShape& shape, Stream part) {
  return CounterRandom(shape.seed).child(part);
}

/// Sets q_0 = e0 and w_0 = `weight` in every row.
void ask_for_first(TraceData& data, float weight) {
  const std::size_t row = product({data.num_heads, data.head_dim});
  for (std::size_t r = 0; r < static_cast<std::size_t>(data.num_queries) && row > 0; ++r) {
    data.q[r * row] = kOne;
    data.weights[r * static_cast<std::size_t>(data.num_heads)] = weight;
  }
}

void set_first_coordinate(TraceData& data, std::uint8_t code) {
  for (std::size_t i = 0; i < data.k.size(); i += static_cast<std::size_t>(data.head_dim)) {
    data.k[i] = code;
  }
}

}  // namespace

TraceData blank_trace(const ExactShape& shape) {
  TraceData data;
  data.num_queries = shape.num_queries;
  data.num_keys = shape.num_keys;
  data.num_heads = shape.num_heads;
  data.head_dim = shape.head_dim;
  data.q.resize(product({shape.num_queries, shape.num_heads, shape.head_dim}));
  data.k.resize(product({shape.num_keys, shape.head_dim}));
  data.k_scale.assign(product({shape.num_keys}), 1.0F);
  data.weights.resize(product({shape.num_queries, shape.num_heads}));
  data.k_start.resize(product({shape.num_queries}));
  data.k_end.resize(data.k_start.size());
  set_windows(data, Windows::kFull, 0);
  return data;
}

void set_windows(TraceData& data, Windows windows, std::int64_t width) {
  for (std::int64_t row = 0; row < data.num_queries; ++row) {
    std::int64_t end = data.num_keys;
    if (windows != Windows::kFull) {
      end = std::max<std::int64_t>(0, data.num_keys - data.num_queries + row + 1);
    }
    const std::int64_t start =
        windows == Windows::kSliding ? std::max<std::int64_t>(0, end - width) : 0;
    data.k_start[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(start);
    data.k_end[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(end);
  }
}

TraceData make_dial(const ExactShape& shape, const std::vector<float>& values, float weight) {
  TraceData data = blank_trace(shape);
  ask_for_first(data, weight);
  set_first_coordinate(data, kOne);
  data.k_scale = values;
  return data;
}

TraceData make_zero(const ExactShape& shape, std::int64_t winners) {
  TraceData data = blank_trace(shape);
  ask_for_first(data, 1.0F);
  set_first_coordinate(data, kMinusOne);
  const std::vector<std::uint32_t> order = shuffled(stream(shape, kShuffle), data.k_scale.size());
  const auto count =
      std::min(order.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, winners)));
  for (std::size_t j = 0; j < count; ++j) {
    data.k[order[j] * static_cast<std::size_t>(shape.head_dim)] = kOne;
    data.k_scale[order[j]] = static_cast<float>(j + 1);
  }
  return data;
}

TraceData make_residue(const ExactShape& shape) {
  TraceData data = blank_trace(shape);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const std::size_t row = product({shape.num_heads, shape.head_dim});
  for (std::size_t i = 0; i < data.k_scale.size() && dim > 0; ++i) {
    data.k[i * dim + i % dim] = kOne;
  }
  for (std::size_t r = 0; r < data.k_start.size() && row > 0; ++r) {
    data.q[r * row + r % dim] = kOne;
    data.weights[r * static_cast<std::size_t>(shape.num_heads)] = 1.0F;
  }
  return data;
}

TraceData make_int(const ExactShape& shape) {
  TraceData data = blank_trace(shape);
  const CounterRandom query = stream(shape, kQuery);
  const CounterRandom key = stream(shape, kKey);
  const CounterRandom scale = stream(shape, kScale);
  const CounterRandom weight = stream(shape, kWeight);
  constexpr std::uint32_t kEighths = 4 * 8;  // weights reach from -32/8 to 32/8
  for (std::size_t i = 0; i < data.q.size(); ++i) {
    data.q[i] = kSmallIntegers[below(query, i, kSmallIntegers.size())];
  }
  for (std::size_t i = 0; i < data.k.size(); ++i) {
    data.k[i] = kSmallIntegers[below(key, i, kSmallIntegers.size())];
  }
  for (std::size_t i = 0; i < data.k_scale.size(); ++i) {
    data.k_scale[i] = 0.25F * static_cast<float>(1U << below(scale, i, 5));
  }
  for (std::size_t i = 0; i < data.weights.size(); ++i) {
    const auto eighths = static_cast<int>(below(weight, i, 2 * kEighths + 1)) - int{kEighths};
    data.weights[i] = 0.125F * static_cast<float>(eighths);
  }
  return data;
}

TraceData make_real(const ExactShape& shape) {
  TraceData data = blank_trace(shape);
  const CounterRandom scale = stream(shape, kScale);
  const CounterRandom weight = stream(shape, kWeight);
  const auto fill = [](std::vector<std::uint8_t>& codes, const CounterRandom& random) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint32_t pick = below(random, i, 2 * kFiniteMagnitudes);
      const std::uint32_t sign = pick < kFiniteMagnitudes ? 0U : 0x80U;
      codes[i] = static_cast<std::uint8_t>(sign | pick % kFiniteMagnitudes);
    }
  };
  fill(data.q, stream(shape, kQuery));
  fill(data.k, stream(shape, kKey));
  for (std::size_t i = 0; i < data.k_scale.size(); ++i) {
    // The upper 23 bits make a significand in [1, 2), the lowest two one of four binades: exact.
    const std::uint64_t bits = scale.bits(i);
    const float significand = 1.0F + static_cast<float>(bits >> 41) * 0x1p-23F;
    data.k_scale[i] = std::ldexp(significand, static_cast<int>(bits & 3U) - 12);
  }
  for (std::size_t i = 0; i < data.weights.size(); ++i) {
    data.weights[i] = 2.0F * unit(weight, i) - 1.0F;
  }
  return data;
}

}  // namespace dosa::io
