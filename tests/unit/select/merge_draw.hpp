// SPDX-License-Identifier: Apache-2.0
// Random lists of scored keys, with special scores and repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "merge_lists.hpp"
#include "oracle/random.hpp"

namespace dosa::test {

inline float draw_score(oracle::Random& random, int kind) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSpecial[] = {kNan,   kInfinity, -kInfinity, 0.0F,  -0.0F,
                                1e-45F, -1e-45F,   1.0F,       -1.0F, 3.4e38F};
  if (kind == 0) return kSpecial[random.below(10)];
  if (kind == 1) return static_cast<float>(random.between(-2, 2));
  return static_cast<float>(random.uniform() - 0.5);
}

/// Lists of a row with ids of their own, or drawn from few ids, so that most are repeats.
inline Lists draw_lists(oracle::Random& random, std::size_t count, std::size_t rows, int longest,
                        bool repeats) {
  Lists lists(count, std::vector<std::vector<Entry>>(rows));
  for (std::size_t row = 0; row < rows; ++row) {
    const int kind = static_cast<int>(random.below(3));
    for (std::size_t l = 0; l < count; ++l) {
      const std::int64_t length = random.once_in(4) ? 0 : random.below(longest + 1);
      for (std::int64_t n = 0; n < length; ++n) {
        const std::int64_t own =
            n * static_cast<std::int64_t>(count) + static_cast<std::int64_t>(l);
        const std::int64_t id = repeats ? random.below(longest) : own;
        lists[l][row].push_back({draw_score(random, kind), static_cast<std::int32_t>(id)});
      }
      if (random.once_in(5) && length > 0) {  // ends early
        lists[l][row][static_cast<std::size_t>(random.below(length))].id = -1;
      }
    }
  }
  return lists;
}

}  // namespace dosa::test
