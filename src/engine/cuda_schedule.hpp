// SPDX-License-Identifier: Apache-2.0
// In which rounds the keys of a row are visited on the device (units of 256 keys).
#ifndef DOSA_ENGINE_CUDA_SCHEDULE_HPP
#define DOSA_ENGINE_CUDA_SCHEDULE_HPP

#include <algorithm>

namespace dosa::engine {

constexpr int kFirstUnits = 32;          // 8K spread keys: every score becomes a record
constexpr int kSampleUnits = 4;          // of them, 1,024 keys measure how often heads are active
constexpr int kMostScreenedUnits = 512;  // 128K keys between two raises of the threshold
constexpr int kReduceShare = 4;          // records grow by K / 4 before a row is reduced again
constexpr int kProbeUnits = 16;          // 4K keys show whether a block of rows is worth screening
constexpr int kDenseKeysPerTopk = 16;    // K / 16 K = 6% of the keys pass when screening begins

/// `auto` scores shorter contexts densely: there screening lost on the hardest trace
/// (docs/kernels.md).
inline int least_screened_keys(int padded_heads) {
  return padded_heads <= 32 ? 448 * 1024 : 224 * 1024;
}
constexpr int kLeastSeededRows = 1024;   // and from this many rows at once
constexpr int kLeastSeededUnits = 1024;  // pilots from 256K keys on

/// Units scored with every head before screening: a power of two, so that probes meet it.
inline int dense_units(int topk) {
  int units = kFirstUnits;
  while (units * 256 < kDenseKeysPerTopk * topk) units *= 2;
  return units;
}

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

/// The least power of two that is at least `units`: where dense blocks are probed again.
inline int probe_place(int units) {
  int place = kFirstUnits;
  while (place < units) place *= 2;
  return place;
}

/// The round behind `done` units when keys are screened: a short probe wherever the context has
/// doubled, else up to the next probe or 64K keys.
inline UnitRange next_screened_round(int done, int most) {
  const int place = probe_place(done);
  if (place == done) return {done, std::min(done + kProbeUnits, most)};
  const int end =
      std::min({done / kMostScreenedUnits * kMostScreenedUnits + kMostScreenedUnits, place, most});
  return {done, end};
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_SCHEDULE_HPP
