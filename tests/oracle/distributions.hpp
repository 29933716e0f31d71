// SPDX-License-Identifier: Apache-2.0
//
// Distributions of scores on which public selectors lost winners, by entry of docs/cases.md: what a
// row's keys score, in which numbers of rows and for which K. Tests of every engine draw them here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "oracle/random.hpp"

namespace dosa::oracle {

struct Distribution {
  std::string name;
  std::vector<float> values;  // the score of each key
  std::int64_t rows = 1;      // all alike
  int topk = 2048;
  int repeats = 1;  // runs that must agree
  float sign = 1.0F;
};

inline std::vector<float> filled(std::int64_t n, const std::function<float(std::int64_t)>& value) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) values.push_back(value(i));
  return values;
}

inline std::vector<Distribution> narrow_scores_in_long_rows() {
  std::vector<Distribution> cases;
  for (const std::int64_t n : {262143, 262144, 262145}) {
    Random random(7);
    cases.push_back(
        {"1 narrow " + std::to_string(n),
         filled(n,
                [&](std::int64_t) { return 1.0F + 0.2F * static_cast<float>(random.uniform()); }),
         64, 2048, 10});
  }
  return cases;
}

inline std::vector<Distribution> populations_around_a_buffer() {
  std::vector<Distribution> cases;
  for (const std::int64_t population : {4095, 4096, 4097, 8191, 8193, 16384}) {
    Random random(7);
    auto values = filled(262144, [&](std::int64_t i) {
      if (i < population) return 1.0F + 1e-6F * static_cast<float>(random.below(100));
      return random.once_in(200) ? 2.0F : 0.5F;
    });
    random.shuffle(values);
    cases.push_back({"1 population " + std::to_string(population), std::move(values), 3});
  }
  return cases;
}

inline std::vector<Distribution> winners_beside_one_coarse_bin() {
  std::vector<Distribution> cases;
  for (const std::int64_t above : {0, 999, 1000, 2047, 2048, 2049}) {
    Random random(11);
    auto values = filled(8192, [&](std::int64_t i) {
      if (i < above) return 2.0F + static_cast<float>(i) * 1e-3F;
      if (i < above + 5000) return 1.0F + static_cast<float>(i - above) * 6e-7F;
      return 0.5F;
    });
    random.shuffle(values);
    cases.push_back({"2 above " + std::to_string(above), std::move(values), 8});
  }
  return cases;
}

inline std::vector<Distribution> narrow_range_at_the_buffer_edge() {
  std::vector<Distribution> cases;
  for (const std::int64_t n : {16383, 16384, 16385, 16386, 16512}) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    Random random(3);
    random.shuffle(order);
    const auto values = filled(n, [&](std::int64_t i) {
      return 1.0F + 0.245F * static_cast<float>(order[static_cast<std::size_t>(i)]) /
                        static_cast<float>(n);
    });
    for (const int k : {512, 1024, 2048}) {
      for (const std::int64_t rows : {32, 33}) {
        cases.push_back({"3 edge " + std::to_string(n), values, rows, k});
      }
    }
  }
  return cases;
}

inline std::vector<Distribution> most_in_one_half_precision_bucket() {
  std::vector<Distribution> cases;
  for (const std::int64_t n : {199999, 200000, 200001}) {
    Random random(5);
    cases.push_back({"7 bucket " + std::to_string(n),
                     filled(n,
                            [&](std::int64_t) {
                              return static_cast<float>(random.below(10) < 6
                                                            ? std::exp(0.002 * random.normal())
                                                            : std::exp(random.normal() - 1.0));
                            }),
                     4});
  }
  return cases;
}

inline std::vector<Distribution> one_band_at_any_magnitude() {
  std::vector<Distribution> cases;
  for (const float magnitude : {10.0F, 1e-6F, 1e6F, 1e-30F, 1e30F}) {
    Random random(1);
    const auto values = filled(32768, [&](std::int64_t) {
      return magnitude * (1.0F + 0.02F * static_cast<float>(random.uniform()));
    });
    for (const float sign : {1.0F, -1.0F}) {
      cases.push_back({"8 band " + std::to_string(magnitude), values, 2, 2048, 1, sign});
    }
  }
  return cases;
}

inline std::vector<Distribution> last_mantissa_bits() {
  std::vector<Distribution> cases;
  for (const int bits : {9, 10, 11}) {
    Random random(42);
    const auto values = filled(32768, [&](std::int64_t) {
      return std::bit_cast<float>(0x3F900000U |
                                  static_cast<std::uint32_t>(random.below(1 << bits)));
    });
    cases.push_back({"10 bits " + std::to_string(bits), values, 8, 2048});
    cases.push_back({"10 bits " + std::to_string(bits), values, 2, 2047});
  }
  return cases;
}

inline std::vector<Distribution> any_distribution() {
  const std::vector<std::function<float(std::int64_t)>> rows = {
      [](std::int64_t) { return 1e-38F; },
      [](std::int64_t) { return 3e38F; },
      [](std::int64_t i) { return i % 2 == 0 ? 1e-30F : 1e30F; },
      [](std::int64_t i) { return i == 4321 ? 3e38F : 1.0F; },
      [](std::int64_t i) { return static_cast<float>(i) * 1.4e-45F; },
      [](std::int64_t i) { return i < 2048 ? static_cast<float>(i + 1) : 0.0F; },
      [](std::int64_t i) { return i == 0 ? 0.0F : -0.0F; },
  };
  std::vector<Distribution> cases;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const std::int64_t n : {4999, 5000, 5001}) {
      for (const float sign : {1.0F, -1.0F}) {
        cases.push_back({"11 row " + std::to_string(row), filled(n, rows[row]), 2, 2048, 1, sign});
      }
    }
  }
  return cases;
}

inline std::vector<Distribution> copies_of_each_score() {
  std::vector<Distribution> cases;
  for (const int copies : {2, 3, 4, 5}) {
    const auto values = filled(8204, [&](std::int64_t i) {
      Random hash(static_cast<std::uint64_t>(i / copies));
      return static_cast<float>(hash.below(1 << 20));
    });
    for (const int k : {2047, 2048, 2049, 2050, 2051}) {
      cases.push_back({"17 copies " + std::to_string(copies), values, 2, k});
    }
  }
  return cases;
}

inline std::vector<Distribution> scores_rounded_to_bfloat16() {
  Random random(18);
  return {{"18 bfloat16",
           filled(131072,
                  [&](std::int64_t) {
                    const auto x = static_cast<float>(std::abs(random.normal()));
                    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) + 0x8000U;
                    return std::bit_cast<float>(bits & 0xffff0000U);
                  }),
           64, 2048, 20}};
}

}  // namespace dosa::oracle
