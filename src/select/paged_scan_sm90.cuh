// SPDX-License-Identifier: Apache-2.0
// Step 2 of decoding: every visible key is scored where it lies; what reaches the threshold is
// kept.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/paged_sm90.cuh"

namespace dosa::select {

constexpr int kMostScanCtas = 192;  // one per multiprocessor; sizes what is kept per CTA

/// What a scan finds. The tiles of all requests, one after another, are cut evenly: a CTA's part of
/// a request is a segment. CTA c's segment of request b has the number b + c: along the cut one of
/// the two grows, so numbers are distinct and below batch + CTAs.
struct PagedRecords {
  uint64_t* records;  // (segments, next_n, capacity)
  uint32_t* counts;   // (segments, next_n)
  int2* ctas;         // (batch) first and last CTA of a request that has anything to scan
  int capacity;       // more than K by kScanSlack at least, or the longest context
  int reduce_from;    // records of a segment and row above which they are reduced
};

/// Records that a segment and row may still gain after they were found to be too many: each of four
/// warpgroups may be within a tile and begin another one.
constexpr int kScanSlack = 512;

struct ScanParams {
  CUtensorMap page_keys;  // unused unless `mapped`
  CUtensorMap page_scales;
  numeric::PagedStep step;
  bool mapped;     // pages can be read by tensor maps
  bool dependent;  // launched right behind the witnesses, before they are done
  int slots;       // set by the launcher: requests whose columns are in shared memory
  const numeric::RowFloor* floors;  // (rows); null: none
  uint32_t* bins;                   // (rows, kFloorBins), zeros; null: thresholds do not rise
  PagedRecords found;
  float* scores;  // store: (rows, max_context), `scores_stride` apart
  int64_t scores_stride;
};

enum class ScanSink {
  kRecord,  // keep what reaches the threshold
  kStore    // write every score
};

/// Guarantee: the records of a row's segments hold its K best (or all), each key at most once
cudaError_t launch_paged_scan_sm90(const ScanParams& params, int padded_heads, ScanSink sink,
                                   int multiprocessors, cudaStream_t stream);

}  // namespace dosa::select
