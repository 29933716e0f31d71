// SPDX-License-Identifier: Apache-2.0
// In which order keys are visited. Any order gives the same answer (E16); one that samples the
// whole context early lets the threshold rise early.
#ifndef DOSA_ENGINE_SCHEDULE_HPP
#define DOSA_ENGINE_SCHEDULE_HPP

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "plan/operands.hpp"

namespace dosa::engine {

/// Half-open range of key ids.
struct Window {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t length() const { return end - begin; }
  [[nodiscard]] bool empty() const { return end <= begin; }
};

/// The tiles of a window, each visited once: the most recent first, then steps of about 0.618 of
/// the context, which spread every prefix of the order evenly.
class TileOrder {
 public:
  explicit TileOrder(Window window)
      : window_(window), tiles_((window.length() + plan::kTileKeys - 1) / plan::kTileKeys) {
    if (tiles_ < 2) return;
    step_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(0.6180339887 * static_cast<double>(tiles_)));
    while (std::gcd(step_, tiles_) != 1) ++step_;
  }

  [[nodiscard]] std::int64_t size() const { return tiles_; }

  [[nodiscard]] Window operator[](std::int64_t i) const {
    const std::int64_t tile = tiles_ - 1 - (i * step_) % tiles_;
    const std::int64_t begin = window_.begin + tile * plan::kTileKeys;
    return {begin, std::min(begin + plan::kTileKeys, window_.end)};
  }

 private:
  Window window_;
  std::int64_t tiles_;
  std::int64_t step_ = 1;
};

/// `count` distinct ids spread over a window, ascending: one per equal stretch, at a hashed place
/// in it, so that periodic keys do not alias. count <= window.length().
inline void spread_sample(Window window, int count, std::int32_t* ids) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = window.begin + i * window.length() / count;
    const std::int64_t end = window.begin + (i + 1) * window.length() / count;
    std::uint64_t hash = (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93ULL;
    ids[i] = static_cast<std::int32_t>(
        begin + static_cast<std::int64_t>((hash >> 32) % static_cast<std::uint64_t>(end - begin)));
  }
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_SCHEDULE_HPP
