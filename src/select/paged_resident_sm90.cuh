// SPDX-License-Identifier: Apache-2.0
// A decode step in one pass: scores stay in shared memory, and the CTAs find the answer together.
// So many requests at a time as have room in the shared memories of all multiprocessors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numeric/paged_sm90.cuh"
#include "select/paged_scan_sm90.cuh"
#include "select/paged_witness_sm90.cuh"
#include "select/radix_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {

constexpr int kMostStepRows = 512;
constexpr int kMostResidentRows = 64;   // of a round: a CTA remembers the cut of each
constexpr int kMostCandidates = 512;    // records around a cut that are ranked one by one
constexpr int kResidentHistograms = 3;  // taken by turns; one is cleared while another is used

/// What the CTAs of a request tell each other; zeros at first.
struct alignas(32) RequestMeeting {
  uint32_t sampled;   // warps that have added to the samples of their rows
  uint32_t arrivals;  // of CTAs, summed over all meetings
};

/// Sums over a sample of a row's scores; only the speed of the selection depends on them.
struct alignas(32) RowSample {
  float sum;
  float squares;
  float count;
  uint32_t candidates;      // records in the row's list
  unsigned long long bins;  // ScoreBins, made of the sums; 0: not yet
};

/// In the workspace.
struct ResidentRows {
  RequestMeeting* meetings;  // (requests)
  RowSample* samples;        // (rows)
  uint32_t* histograms;      // (rows, kResidentHistograms, kBins)
  uint64_t* candidates;      // (rows, kMostCandidates)
  uint32_t* counts;          // (rows, kMostScanCtas) what each CTA has of a row
};

struct ResidentParams {
  ScanParams scan;
  ResidentRows rows;
  OutputForm form;       // its table is that of the requests; in order of ids
  WitnessStates states;  // rewritten
  int room;              // scores of a row that fit a CTA
  int requests;          // of a round
  int rounds;
};

/// How many rounds a step of this shape takes, whose longest request has so many tokens; 0: not
/// even one request has room, or there are too many.
int count_resident_rounds(int padded_heads, int next_n, int64_t batch, int64_t tokens,
                          int multiprocessors);

/// Writes every row's answer, and the state of every request that has one; room, requests and
/// rounds are set by the launcher.
cudaError_t launch_paged_resident_sm90(const ResidentParams& params, int padded_heads,
                                       int multiprocessors, cudaStream_t stream);

}  // namespace dosa::select
