// SPDX-License-Identifier: Apache-2.0
// In which rounds the keys of a row are visited on the device (units of 256 keys).
#ifndef DOSA_ENGINE_CUDA_SCHEDULE_HPP
#define DOSA_ENGINE_CUDA_SCHEDULE_HPP

#include <algorithm>
#include <cstdint>

namespace dosa::engine {

constexpr int kFirstUnits = 32;          // 8K spread keys: every score becomes a record
constexpr int kSampleUnits = 4;          // of them, 1,024 keys measure how often heads are active
constexpr int kMostScreenedUnits = 512;  // 128K keys between two raises of the threshold
constexpr int kReduceShare = 4;          // records grow by K / 4 before a row is reduced again
constexpr int kProbeUnits = 16;          // 4K keys show whether a block of rows is worth screening
constexpr int kLeastProbedUnits = 512;   // rounds from shorter contexts are not worth a probe
constexpr int kScoutUnits = 4;           // 1K keys of a few blocks tell which width to use
constexpr int kFixedKeysPerTopk = 16;    // scored before a fixed threshold is taken

/// Where screening with the wider kernel won on every trace (docs/kernels.md).
inline bool long_context(int64_t num_keys, int padded_heads) {
  return num_keys >= (padded_heads <= 32 ? 448 : 224) * 1024;
}

/// Whether scouts cost less than 2% of full scoring: they take 0.3 to 0.6 ms whatever they find
/// (docs/kernels.md).
inline bool worth_scouting(int64_t num_queries, int64_t num_keys, int padded_heads) {
  constexpr int64_t kLeastKeys = 96 * 1024;
  const int64_t least_products = int64_t{1} << (long_context(num_keys, padded_heads) ? 36 : 37);
  return num_keys >= kLeastKeys && num_queries >= least_products / padded_heads / num_keys;
}

/// Where storing every score and selecting afterwards is the fastest way to score all keys
/// (docs/kernels.md): until filtering the scores costs less than writing and reading them.
inline bool worth_storing(int64_t num_keys, int padded_heads) {
  return num_keys <= (padded_heads <= 32 ? 160 : 192) * 1024;
}

/// Units scored with every head before screening begins.
inline int dense_units(int topk, bool fixed_threshold) {
  int units = kFirstUnits;
  while (fixed_threshold && units * 256 < kFixedKeysPerTopk * topk) units *= 2;
  return units;
}

constexpr int kLeastEstimatedUnits = 512;  // full scoring of shorter contexts gains nothing by it

/// Where the estimated thresholds are raised: each time costs about as much as a reduction, so only
/// where the visited context has grown fourfold, and at the last two doublings of long ones.
inline bool raises_estimate(int units) {
  return units == 32 || units == 128 || units == 512 || units == 1024 || units == 2048;
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

/// The round behind `done` units when keys are screened: up to where the context has doubled, at
/// most 128K keys; at each doubling of a long context a short probe first.
inline UnitRange next_screened_round(int done, int most) {
  const bool doubled = probe_place(done) == done;
  if (doubled && done >= kLeastProbedUnits) return {done, std::min(done + kProbeUnits, most)};
  const int place = doubled ? 2 * done : probe_place(done);
  const int end =
      std::min({done / kMostScreenedUnits * kMostScreenedUnits + kMostScreenedUnits, place, most});
  return {done, end};
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_SCHEDULE_HPP
