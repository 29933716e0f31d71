// SPDX-License-Identifier: Apache-2.0
// In which rounds the keys of a row are visited on the device (units of 256 keys).
#ifndef DOSA_ENGINE_CUDA_SCHEDULE_HPP
#define DOSA_ENGINE_CUDA_SCHEDULE_HPP

#include <algorithm>

namespace dosa::engine {

constexpr int kFirstUnits = 32;          // 8K spread keys: every score becomes a record
constexpr int kSampleUnits = 4;          // of them, 1,024 keys measure how often heads are active
constexpr int kDenseUnits = 128;         // 32K keys before screening: below, most keys survive
constexpr int kMostScreenedUnits = 256;  // 64K keys between two raises of the threshold
constexpr int kLeastScreenedKeys = 96 * 1024;  // shorter contexts are scored densely
constexpr float kMostSurvivors = 0.3f;   // a group's share of survivors above which dense is faster

struct UnitRange {
  int begin;
  int end;
};

/// The round behind `done` units when every key is scored: the visited context doubles, so that
/// about K new records pass each time.
inline UnitRange next_dense_round(int done, int most) {
  const int length = done == 0 ? kFirstUnits : done;
  return {done, std::min(done + length, most)};
}

/// The round behind `done` units when keys are screened.
inline UnitRange next_screened_round(int done, int most) {
  return {done, std::min(done + std::min(done, kMostScreenedUnits), most)};
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_SCHEDULE_HPP
