// SPDX-License-Identifier: Apache-2.0
//
// Where the search for violations starts, and how it varies what it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "oracle/random.hpp"
#include "violations_search.hpp"

namespace dosa::test {

/// Regions where rounding is at its worst.
enum class Region : int {
  kReal,        // normal vectors, signed weights
  kHalfSteps,   // equal heads; weights of 1 and of just over or under half a step of it
  kCancelling,  // pairs of heads whose terms nearly cancel
  kCliffs,      // powers of two and their lower neighbours
  kSubnormal,   // products below the least normal number, lifted by the key's scale
  kTinyScale,   // scores near the least positive number
  kLowParts,    // a few large coordinates among many small ones: int16 rows lose them
  kWide,        // any codes, weights over 60 octaves
  kCount
};

class Mutator {
 public:
  Mutator(Region region, int heads, int head_dim, std::uint64_t seed)
      : region_(region), heads_(heads), head_dim_(head_dim), random_(seed) {}

  Candidate start() {
    Candidate c;
    c.q.resize(static_cast<std::size_t>(heads_) * static_cast<std::size_t>(head_dim_));
    c.weights.resize(static_cast<std::size_t>(heads_));
    c.k.resize(static_cast<std::size_t>(head_dim_));
    for (int h = 0; h < heads_; ++h) {
      const bool copy = h > 0 && (region_ == Region::kHalfSteps || random_.once_in(3) ||
                                  (region_ == Region::kCancelling && h % 2 == 1));
      std::uint8_t* head = c.q.data() + at(h, 0);
      if (copy) std::memcpy(head, head - head_dim_, static_cast<std::size_t>(head_dim_));
      for (int d = 0; d < head_dim_ && !copy; ++d) head[d] = code();
    }
    for (int h = 0; h < heads_; ++h) c.weights[static_cast<std::size_t>(h)] = weight(c, h);
    const int head = static_cast<int>(random_.below(heads_));
    for (int d = 0; d < head_dim_; ++d) {
      c.k[static_cast<std::size_t>(d)] =
          random_.once_in(2) ? c.q[static_cast<std::size_t>(at(head, d))] : code();
    }
    c.scale = scale();
    change_plan(c);
    return c;
  }

  /// Changes the query, the weights or the plan.
  void vary_row(Candidate& c) {
    const auto h = static_cast<int>(random_.below(heads_));
    float& weight_of_head = c.weights[static_cast<std::size_t>(h)];
    switch (random_.below(8)) {
      case 0:
        change_plan(c);
        break;
      case 1:
        weight_of_head = weight(c, h);
        break;
      case 2:
        weight_of_head = nudge(weight_of_head);
        break;
      case 3:
        weight_of_head = std::ldexp(weight_of_head, random_.once_in(2) ? 1 : -1);
        break;
      case 4:
        weight_of_head = c.weights[static_cast<std::size_t>(random_.below(heads_))];
        break;
      case 5:
        std::memcpy(c.q.data() + at(h, 0),
                    c.q.data() + at(static_cast<int>(random_.below(heads_)), 0),
                    static_cast<std::size_t>(head_dim_));
        break;
      default:
        for (int n = 0; n < 2; ++n)
          vary_code(
              c.q[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(c.q.size())))]);
    }
  }

  /// 256 variants of the best key; the first is the key itself.
  void vary_keys(const Candidate& c, std::uint8_t* codes, float* scales) {
    for (int i = 0; i < PairTester::kKeys; ++i) {
      std::uint8_t* key = codes + static_cast<std::ptrdiff_t>(i) * head_dim_;
      std::memcpy(key, c.k.data(), c.k.size());
      scales[i] = c.scale;
      if (i == 0) continue;
      if (random_.once_in(3)) scales[i] = random_.once_in(4) ? scale() : nudge(c.scale);
      const std::int64_t changes = random_.below(4);
      for (std::int64_t n = 0; n < changes; ++n) vary_code(key[random_.below(head_dim_)]);
      if (random_.once_in(16)) {
        const int head = static_cast<int>(random_.below(heads_));
        std::memcpy(key, c.q.data() + at(head, 0), c.k.size());
      }
    }
  }

 private:
  [[nodiscard]] std::ptrdiff_t at(int h, int d) const {
    return static_cast<std::ptrdiff_t>(h) * head_dim_ + d;
  }

  double octave(std::int64_t low, std::int64_t high) {
    return std::ldexp(1.0, static_cast<int>(random_.between(low, high)));
  }

  /// A few steps up or down, the mantissa of one or of just below it, or a new mantissa.
  float nudge(float x) {
    if (!std::isfinite(x) || x == 0.0F) return x;
    auto bits = std::bit_cast<std::uint32_t>(x);
    const std::int64_t way = random_.below(6);
    if (way < 3) bits += static_cast<std::uint32_t>(random_.between(-3, 3));
    if (way == 3) bits &= 0xFF800000U;
    if (way == 4) bits = (bits & 0xFF800000U) - 1;
    if (way == 5) bits ^= static_cast<std::uint32_t>(random_.below(1 << 23));
    const auto y = std::bit_cast<float>(bits);
    return std::isfinite(y) ? y : x;
  }

  std::uint8_t code() {
    const auto any = [this] {
      const auto drawn = static_cast<std::uint8_t>(random_.below(256));
      return (drawn & 0x7F) == 0x7F ? std::uint8_t{0x7E} : drawn;
    };
    switch (region_) {
      case Region::kReal:
        return oracle::encode_e4m3(random_.normal());
      case Region::kCancelling:
        return oracle::encode_e4m3(8 * random_.normal());
      case Region::kHalfSteps:
        return random_.once_in(4) ? any() : std::uint8_t{0x38};
      case Region::kCliffs:
        return static_cast<std::uint8_t>((any() & 0xF8) | (random_.once_in(2) ? 0 : 7)) & 0xF7;
      case Region::kSubnormal:
        return static_cast<std::uint8_t>(any() & 0x87);
      case Region::kTinyScale:
        return oracle::encode_e4m3(0.25 * random_.normal());
      case Region::kLowParts:
        return random_.once_in(8) ? static_cast<std::uint8_t>(0x7E - random_.below(16))
                                  : static_cast<std::uint8_t>(random_.below(24));
      default:
        return any();
    }
  }

  void vary_code(std::uint8_t& x) {
    switch (random_.below(5)) {
      case 0:
        x ^= 0x80;
        break;
      case 1:
        x ^= static_cast<std::uint8_t>(1 << random_.below(7));
        break;
      case 2:
        x = 0;
        break;
      case 3:
        x = static_cast<std::uint8_t>(x + random_.between(-1, 1));
        break;
      default:
        x = code();
    }
    if ((x & 0x7F) == 0x7F) x ^= 1;
  }

  float weight(const Candidate& c, int h) {
    const double sign = random_.once_in(2) ? 1.0 : -1.0;
    switch (region_) {
      case Region::kHalfSteps: {
        if (h == 0 || random_.once_in(12)) return 1.0F;
        const double off = random_.once_in(2) ? 0x1p-10 : -0x1p-10;
        return static_cast<float>((random_.once_in(8) ? -1.0 : 1.0) * 0x1p-24 * (1 + off));
      }
      case Region::kCancelling:
        if (h % 2 == 1) return nudge(-c.weights[static_cast<std::size_t>(h) - 1]);
        return static_cast<float>(sign * (1 + random_.uniform()));
      case Region::kCliffs:
        return nudge(static_cast<float>(sign * octave(-6, 6)));
      case Region::kSubnormal:
        return static_cast<float>(sign * octave(-149, -120) * (1 + random_.uniform()));
      case Region::kTinyScale:
        return static_cast<float>(sign * octave(-60, -40) * (1 + random_.uniform()));
      case Region::kWide:
        return static_cast<float>(sign * octave(-30, 30) * (1 + random_.uniform()));
      default:
        return static_cast<float>(random_.normal());
    }
  }

  float scale() {
    switch (region_) {
      case Region::kSubnormal:
        return static_cast<float>(octave(0, 90) * (1 + random_.uniform()));
      case Region::kTinyScale:
        return static_cast<float>(octave(-107, -80) * (1 + random_.uniform()));
      case Region::kCliffs:
        return nudge(static_cast<float>(octave(-3, 3)));
      default:
        return random_.once_in(2) ? 1.0F : static_cast<float>(0.5 + random_.uniform());
    }
  }

  void change_plan(Candidate& c) {
    c.options.retained = static_cast<int>(random_.between(1, heads_));
    if (random_.once_in(2)) c.options.retained = heads_;
    c.options.projection = !random_.once_in(4);
    c.options.allowance = static_cast<dosa_allowance>(random_.below(4));
    c.options.groups = 2 << random_.below(3);
    while (head_dim_ % (8 * c.options.groups) != 0) c.options.groups /= 2;
    c.options.aggregate = static_cast<dosa_aggregate>(random_.below(5));
    c.options.retain = static_cast<dosa_retain>(random_.below(2));
    c.statistics.samples = 8;
    for (int h = 0; h < heads_; ++h) {
      c.statistics.active[static_cast<std::size_t>(h)] =
          static_cast<std::int32_t>(random_.below(9));
    }
  }

  Region region_;
  int heads_, head_dim_;
  oracle::Random random_;
};

}  // namespace dosa::test
