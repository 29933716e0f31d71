// SPDX-License-Identifier: Apache-2.0
// Where a row's winners end: its CTAs count their scores in common bins until the last winner's bin
// is known.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "select/paged_meeting_sm90.cuh"
#include "select/radix_sm90.cuh"

namespace dosa::select {

constexpr uint32_t kNoCode = 0xffffffffu;  // above the codes of all scores

/// Which tokens of a row win, and which go to the state.
struct RowCut {
  unsigned long long bound;  // the least record of a winner
  uint32_t sure;             // codes from here on win
  uint32_t least;            // codes below this lose; those between are compared with the bound
  uint32_t state;            // codes from here on go to the state; kNoCode: the winners do
  uint32_t states;           // how many
  uint32_t needed;           // winners among the codes between
  uint32_t between;          // such codes, all of them in the row's list; 0: there is no list

  [[nodiscard]] __device__ __forceinline__ bool wins(uint32_t code, int token) const {
    return code >= sure || (code >= least && record(code, token) >= bound);
  }
  /// Codes below this are of no interest.
  [[nodiscard]] __device__ __forceinline__ uint32_t floor() const { return min(least, state); }

  static __device__ __forceinline__ uint64_t record(uint32_t code, int token) {
    return static_cast<uint64_t>(code) << 32 | static_cast<uint32_t>(~token);
  }
};

/// The bin of a record that is sought.
struct FoundBin {
  int bin;          // -1: there are not so many records
  uint32_t needed;  // which one of the bin's records it is
  uint32_t in_bin;
};

struct CutShared {
  RadixShared radix;
  FoundBin found[2];
  uint32_t codes[3];
  uint32_t listed;  // records in the list
  RowCut cut;

  /// Records around a cut, in the place of the counts, which are with the others by then.
  [[nodiscard]] __device__ __forceinline__ uint64_t* list() {
    static_assert(kMostCandidates * 2 <= kBins, "they have room");
    return reinterpret_cast<uint64_t*>(radix.histogram);
  }
};

/// A row's scores in this CTA.
struct ResidentRow {
  const uint32_t* codes;  // shared memory, aligned to 16 bytes
  int first_token;
  int count;
};

/// Calls visit(code, token) for the scores of a row; all consumers call this.
template <class Visit>
__device__ __forceinline__ void visit_scores(const ResidentRow& row, Visit visit) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 4; i < row.count; i += kScanThreads * 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(row.codes + i);
    const int token = row.first_token + i;
    visit(four.x, token);
    if (i + 1 < row.count) visit(four.y, token + 1);
    if (i + 2 < row.count) visit(four.z, token + 2);
    if (i + 3 < row.count) visit(four.w, token + 3);
  }
}

__device__ __forceinline__ void clear_counts(RadixShared& radix) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kScanThreads) radix.histogram[i] = 0;
  ScanTeam::sync();
}

/// Adds this CTA's counts to those of the row; all consumers call this.
__device__ __forceinline__ void add_counts(const RadixShared& radix, uint32_t* histogram) {
  ScanTeam::sync();
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kScanThreads) {
    if (radix.histogram[i] != 0) atomicAdd(histogram + i, radix.histogram[i]);
  }
}

/// Counts of a row, four bins per thread from the highest down, and where they stand.
struct CountedBins {
  uint32_t counts[4];
  uint32_t above;  // records in the bins of threads before

  [[nodiscard]] __device__ __forceinline__ int first() const {
    return kBins - 1 - static_cast<int>(threadIdx.x) * 4;
  }
  /// Where the `needed`-th record lies in this thread's bins, tells so; others leave `found` alone.
  __device__ __forceinline__ void find(uint32_t needed, FoundBin& found) const {
    uint32_t before = above;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (before < needed && needed <= before + counts[i]) {
        found = {first() - i, needed - before, counts[i]};
      }
      before += counts[i];
    }
  }
};

/// Reads the counts of all members; all consumers call this. `warp_sums` is shared memory.
__device__ __forceinline__ CountedBins read_counts(const uint32_t* histogram, uint32_t* warp_sums) {
  static_assert(kBins == kScanThreads * 4, "a thread reads four bins");
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  const uint4 four =
      __ldcg(reinterpret_cast<const uint4*>(histogram) + (kScanThreads - 1 - thread));
  CountedBins bins{{four.w, four.z, four.y, four.x}, 0};
  const uint32_t own = four.x + four.y + four.z + four.w;
  uint32_t upto = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_sums[thread / 32] = upto;
  ScanTeam::sync();
  const uint32_t before = lane < thread / 32 ? warp_sums[lane] : 0;
  bins.above = __reduce_add_sync(0xffffffffu, before) + upto - own;
  return bins;
}

/// Counts a row's scores in its bins, for the row's first meeting; all consumers call this.
__device__ __forceinline__ void count_scores(RadixShared& radix, const ResidentRow& row,
                                             numeric::ScoreBins bins, uint32_t* histogram) {
  clear_counts(radix);
  const uint32_t from = numeric::order_code(bins.low);
  visit_scores(row, [&](uint32_t code, int) {
    if (code < from) return;
    const int bin = numeric::bin_of(bins, numeric::score_of_code(code), kBins - 1);
    atomicAdd(&radix.histogram[bin], 1u);
  });
  add_counts(radix, histogram);
}

/// The least code whose score lies in `bin` or above; one warp calls this.
__device__ __forceinline__ uint32_t least_code(numeric::ScoreBins bins, int bin) {
  constexpr uint32_t kInfinity = 0xff800000u;  // its score lies in the last bin
  constexpr uint32_t kNear = 16;
  if (bin >= kBins) return kNoCode;
  const auto lane = static_cast<uint32_t>(threadIdx.x) & 31;
  uint32_t low = numeric::order_code(bins.low);
  uint32_t high = kInfinity;  // reaches the bin; what is sought lies between, both included
  // The first guess is rarely wrong by more than the roundings of a few operations.
  const uint32_t guess = numeric::order_code(numeric::bin_edge(bins, bin));
  uint32_t begin = guess > low + kNear && guess < kInfinity ? guess - kNear : low;
  uint32_t step = 1;
  while (low < high) {
    const uint32_t offset = step * lane;
    const uint32_t code = high - begin > offset ? begin + offset : high;
    const bool reached = numeric::bin_of(bins, numeric::score_of_code(code), kBins - 1) >= bin;
    const uint32_t votes = __ballot_sync(0xffffffffu, reached);
    const int first = votes != 0 ? __ffs(static_cast<int>(votes)) - 1 : 32;
    const uint32_t reaching = __shfl_sync(0xffffffffu, code, first & 31);
    const uint32_t failing = __shfl_sync(0xffffffffu, code, (first + 31) & 31);
    if (first < 32) high = reaching;
    if (first > 0) low = failing + 1;
    if (first == 0 && begin == low) low = high;
    begin = low;
    step = (high - low + 31) / 32;
  }
  return high;
}

/// The cut from the counts of all members; false: the bins were of no use. All consumers call this.
__device__ __forceinline__ bool cut_by_bins(CutShared& shared, const uint32_t* histogram,
                                            numeric::ScoreBins bins, int topk, RowCut& cut) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    shared.found[0].bin = -1;
    shared.found[1].bin = -1;
    shared.listed = 0;
  }
  const CountedBins counted = read_counts(histogram, shared.radix.warp_sums);
  const uint32_t beyond = static_cast<uint32_t>(witness_capacity(topk)) + 1;
  counted.find(static_cast<uint32_t>(topk), shared.found[0]);
  counted.find(beyond, shared.found[1]);
  ScanTeam::sync();
  const FoundBin last = shared.found[0];
  FoundBin more = shared.found[1];
  if (last.bin < 0 || last.in_bin > kMostCandidates) return false;
  // Tokens of the bins above that of the first one without room go to the state.
  if (more.bin >= last.bin) more.bin = -1;
  if (thread < 3 * 32) {
    const int edge = thread < 32 ? last.bin + 1
                                 : (thread < 64 ? last.bin : (more.bin < 0 ? kBins : more.bin + 1));
    const uint32_t code = least_code(bins, edge);
    if (thread % 32 == 0) shared.codes[thread / 32] = code;
  }
  ScanTeam::sync();
  cut.sure = shared.codes[0];
  cut.least = shared.codes[1];
  cut.state = shared.codes[2];
  cut.states = more.bin < 0 ? static_cast<uint32_t>(topk) : beyond - more.needed;
  cut.needed = last.needed;
  cut.between = last.in_bin;
  return true;
}

/// The same by the bits of the records, eleven at a time: for plateaus, and whatever else the bins
/// do not part. Meets the others after each step; all consumers of all members call this. The cut
/// is left in `shared`; returns how often all have met.
__device__ __noinline__ uint32_t cut_by_bits(CutShared& shared, const ResidentRow row, bool leads,
                                             int members, RequestMeeting& meeting,
                                             uint32_t meetings, uint32_t* histograms, int topk) {
  RadixShared& radix = shared.radix;
  int top = 64;  // bits not yet decided
  uint64_t prefix = 0;
  auto needed = static_cast<uint32_t>(topk);
  for (int level = 1; top > 0; ++level) {
    uint32_t* const own = histograms + level % kResidentHistograms * kBins;
    uint32_t* const next = histograms + (level + 1) % kResidentHistograms * kBins;
    const int shift = top > kDigitBits ? top - kDigitBits : 0;
    const uint32_t mask = (1u << (top - shift)) - 1;
    clear_counts(radix);
    visit_scores(row, [&](uint32_t code, int token) {
      const uint64_t record = RowCut::record(code, token);
      const bool match = top == 64 || record >> top == prefix >> top;
      if (match) atomicAdd(&radix.histogram[static_cast<uint32_t>(record >> shift) & mask], 1u);
    });
    add_counts(radix, own);
    if (leads) {  // all have read it two meetings ago
      for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kScanThreads) next[i] = 0;
    }
    arrive(meeting);
    await(meeting, members, ++meetings);
    read_counts(own, radix.warp_sums).find(needed, shared.found[0]);
    ScanTeam::sync();
    const FoundBin found = shared.found[0];
    prefix |= static_cast<uint64_t>(found.bin) << shift;
    needed = found.needed;
    top = shift;
    ScanTeam::sync();
    if (found.in_bin == needed) break;
  }
  const auto code = static_cast<uint32_t>(prefix >> 32);
  shared.cut = {prefix, code + 1, code, kNoCode, static_cast<uint32_t>(topk), 0, 0};
  ScanTeam::sync();
  return meetings;
}

}  // namespace dosa::select
