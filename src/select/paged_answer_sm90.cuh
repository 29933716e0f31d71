// SPDX-License-Identifier: Apache-2.0
// The answer of a step whose scores lie in shared memory. Tokens of a CTA are neighbours, so every
// CTA writes its winners where they belong as soon as it knows how many come before: nothing is
// sorted.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "select/paged_cut_sm90.cuh"
#include "select/paged_form_sm90.cuh"

namespace dosa::select {

constexpr int kScanWarps = kScanThreads / 32;

/// A segment of a round.
struct Part {
  int request;
  int first;  // tile of the request
  int end;
  int place;        // tiles of the share before it
  int2 ctas;        // first and last one of the request
  bool leads;       // has the request's first token
  int state_query;  // whose winners go to the request's state

  [[nodiscard]] __device__ __forceinline__ int members() const { return ctas.y - ctas.x + 1; }
};

/// What this CTA knows of a row that it has scores of.
struct PartRow {
  int length;       // 0: the row is answered without a look at its keys
  bool has_losers;  // longer than K
  unsigned long long bins;
  RowCut cut;
  uint32_t warp_counts[kScanWarps];  // winners that are not listed, tokens for the state << 16
};

struct AnswerShared {
  CutShared cut;
  int count;  // of parts
  Part parts[kMostResidentRows];
  uint32_t meetings[kMostResidentRows];  // of each part's request so far
  PartRow rows[kMostResidentRows];       // (parts, next_n)
  uint32_t winners_before;
  uint32_t states_before;
  unsigned long long bound;
};

/// The part of a row that a warp goes through, in order.
struct WarpPart {
  static constexpr int kStep = 128;  // scores, four per lane
  int begin;
  int end;

  __device__ __forceinline__ explicit WarpPart(const ResidentRow& row) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int steps = (row.count + kScanWarps * kStep - 1) / (kScanWarps * kStep);
    begin = min(warp * steps * kStep, row.count);
    end = min(begin + steps * kStep, row.count);
  }
};

/// Calls visit(codes, first token, how many) for four scores per lane at a time, unless all of the
/// warp's lie below `floor`; the whole warp calls this and stays together.
template <class Visit>
__device__ __forceinline__ void visit_part(const ResidentRow& row, uint32_t floor, Visit visit) {
  const WarpPart part(row);
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll 1
  for (int start = part.begin; start < part.end; start += WarpPart::kStep) {
    const int at = start + 4 * lane;
    uint32_t codes[4] = {};
    if (at < part.end) {
      const uint4 four = *reinterpret_cast<const uint4*>(row.codes + at);
      codes[0] = four.x;
      codes[1] = four.y;
      codes[2] = four.z;
      codes[3] = four.w;
    }
    const uint32_t most = max(max(codes[0], codes[1]), max(codes[2], codes[3]));
    if (!__any_sync(0xffffffffu, most >= floor)) continue;
    visit(codes, row.first_token + at, min(max(part.end - at, 0), 4));
  }
}

/// A CTA at work on the answer.
struct Answer {
  const ResidentParams& params;
  AnswerShared& shared;
  const uint32_t* codes;  // (next_n, room)

  __device__ __forceinline__ const numeric::PagedStep& step() const { return params.scan.step; }

  __device__ __forceinline__ PartRow& row_at(int part, int t) const {
    return shared.rows[part * step().next_n + t];
  }
  __device__ __forceinline__ ResidentRow scores_of(const Part& part, int t, int length) const {
    const int first = part.first * numeric::kTokenTile;
    const int end = min(part.end * numeric::kTokenTile, length);
    return {codes + t * params.room + part.place * numeric::kTokenTile, first, max(end - first, 0)};
  }
  __device__ __forceinline__ int row_number(const Part& part, int t) const {
    return part.request * step().next_n + t;
  }
  __device__ __forceinline__ uint32_t* histograms(int row) const {
    return params.rows.histograms + static_cast<int64_t>(row) * (kResidentHistograms * kBins);
  }
  __device__ __forceinline__ RequestMeeting& meeting_of(const Part& part) const {
    return params.rows.meetings[part.request];
  }
  /// Winners without those in the row's list, and tokens for the state << 16, in a CTA.
  __device__ __forceinline__ uint32_t& count_of(int row, int cta) const {
    return params.rows.counts[row * kMostScanCtas + cta];
  }

  /// Brings together what the consumers need to know of a round; one warp calls this.
  __device__ __noinline__ void prepare(MeetingWalk walk) const {
    const int t = static_cast<int>(threadIdx.x) & 31;
    while (walk.next(step())) {
      const int b = walk.segment.request;
      // Bins come after this CTA's own sample, which it takes when it is done with the round
      // before.
      unsigned long long bins = 0;
      if (t < step().next_n) bins = await_bins(params.rows.samples[b * step().next_n + t]);
      __syncwarp();
      if (t < step().next_n) {
        PartRow& row = row_at(walk.number, t);
        const int length = numeric::row_length(step(), b, t);
        row.length = numeric::is_short(step(), length) ? 0 : length;
        row.has_losers = row.length > step().topk;
        row.bins = bins;
      }
      if (t == 0) {
        shared.parts[walk.number] = {b,         walk.segment.first, walk.segment.end, walk.place,
                                     walk.ctas, walk.leads(),       last_query(b)};
        shared.count = walk.number + 1;
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ void count() const {
#pragma unroll 1
    for (int i = 0; i < shared.count; ++i) {
      const Part part = shared.parts[i];
#pragma unroll 1
      for (int t = 0; t < step().next_n; ++t) {
        const PartRow& row = row_at(i, t);
        if (!row.has_losers) continue;
        count_scores(shared.cut.radix, scores_of(part, t, row.length), unpack_bins(row.bins),
                     histograms(row_number(part, t)));
      }
      arrive(meeting_of(part));
    }
  }

  /// Counts what a row has here and lists the records around its cut.
  __device__ __forceinline__ void sort_out(int row, const ResidentRow& scores, const RowCut& cut,
                                           uint32_t* warp_counts) const {
    const int thread = static_cast<int>(threadIdx.x);
    uint64_t* const list = shared.cut.list();
    uint32_t counts = 0;
    visit_part(scores, cut.floor(), [&](const uint32_t(&four)[4], int token, int count) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j >= count) continue;
        if (cut.between != 0) {
          counts += four[j] >= cut.sure ? 1 : 0;
          if (four[j] >= cut.least && four[j] < cut.sure) {
            list[atomicAdd(&shared.cut.listed, 1u)] = RowCut::record(four[j], token + j);
          }
        } else {
          counts += cut.wins(four[j], token + j) ? 1 : 0;
        }
        if (cut.state != kNoCode && four[j] >= cut.state) counts += 1u << 16;
      }
    });
    counts = __reduce_add_sync(0xffffffffu, counts);
    if ((thread & 31) == 0) warp_counts[thread / 32] = counts;
    ScanTeam::sync();
    if (thread < kScanWarps) {
      const uint32_t sum = __reduce_add_sync((1u << kScanWarps) - 1, warp_counts[thread]);
      if (thread == 0) count_of(row, static_cast<int>(blockIdx.x)) = sum;
    } else if (thread / 32 == 1 && cut.between != 0) {
      const uint32_t listed = shared.cut.listed;
      uint32_t base = 0;
      if (listed != 0 && thread == 32) {
        base = atomicAdd(&params.rows.samples[row].candidates, listed);
      }
      base = __shfl_sync(0xffffffffu, base, 0);
      for (uint32_t i = thread - 32; i < listed; i += 32) {
        params.rows.candidates[row * kMostCandidates + base + i] = list[i];
      }
    }
    ScanTeam::sync();  // the next row's take their place
  }

  __device__ __forceinline__ void cut() const {
#pragma unroll 1
    for (int i = 0; i < shared.count; ++i) {
      const Part part = shared.parts[i];
      RequestMeeting& meeting = meeting_of(part);
      uint32_t meetings = 1;
      await(meeting, part.members(), meetings);
#pragma unroll 1
      for (int t = 0; t < step().next_n; ++t) {
        PartRow& row = row_at(i, t);
        if (row.length == 0) continue;
        const ResidentRow scores = scores_of(part, t, row.length);
        const int number = row_number(part, t);
        RowCut cut{};
        cut.state = kNoCode;
        if (row.has_losers) {
          uint32_t* const own = histograms(number);
          if (!cut_by_bins(shared.cut, own, unpack_bins(row.bins), step().topk, cut)) {
            meetings = cut_by_bits(shared.cut, scores, part.leads, part.members(), meeting,
                                   meetings, own, step().topk);
            cut = shared.cut.cut;
          }
        }
        if (threadIdx.x == 0) row.cut = cut;
        sort_out(number, scores, cut, row.warp_counts);
      }
      if (threadIdx.x == 0) shared.meetings[i] = meetings + 1;
      arrive(meeting);
    }
  }

  /// Finds the least record that wins, where the row's list holds it, and what comes before this
  /// warp's part: winners, and tokens for the state.
  __device__ __forceinline__ uint2 settle(const Part& part, int number, const ResidentRow& scores,
                                          const uint32_t* warp_counts, RowCut& cut) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread & 31;
    const int count = static_cast<int>(cut.between);
    const uint64_t* const list = params.rows.candidates + number * kMostCandidates;
    static_assert(kMostCandidates <= kScanThreads, "a thread has one of them");
    uint64_t* const candidates = shared.cut.list();
    const int earlier = static_cast<int>(blockIdx.x) - part.ctas.x;
    const uint32_t before = thread < earlier ? __ldcg(&count_of(number, part.ctas.x + thread)) : 0;
    const uint64_t own = thread < count ? __ldcg(list + thread) : 0;
    ScanTeam::sync();  // the row before is done with these
    if (thread == 0) {
      shared.winners_before = 0;
      shared.states_before = 0;
    }
    if (thread < count) candidates[thread] = own;
    ScanTeam::sync();
    if (thread < count) {
      uint32_t better = 0;
#pragma unroll 4
      for (int i = 0; i < count; ++i) better += candidates[i] > own ? 1 : 0;
      if (better + 1 == cut.needed) shared.bound = own;
    }
    if (thread / 32 * 32 < earlier) {
      const uint32_t winners = __reduce_add_sync(0xffffffffu, before & 0xffff);
      const uint32_t states = __reduce_add_sync(0xffffffffu, before >> 16);
      if (lane == 0) {
        atomicAdd(&shared.winners_before, winners);
        atomicAdd(&shared.states_before, states);
      }
    }
    ScanTeam::sync();
    const uint32_t own_warps = lane < thread / 32 ? warp_counts[lane] : 0;
    const uint2 sum_before{shared.winners_before, shared.states_before};
    uint2 sum{sum_before.x + __reduce_add_sync(0xffffffffu, own_warps & 0xffff),
              sum_before.y + __reduce_add_sync(0xffffffffu, own_warps >> 16)};
    if (count == 0) return sum;
    cut.bound = shared.bound;
    // Of the records around the cut those that win and stand before this warp's part.
    const int first = scores.first_token + WarpPart(scores).begin;
    uint32_t others = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += 32) {
      const uint64_t record = candidates[i];
      others += record >= cut.bound && numeric::record_key(record) < first ? 1 : 0;
    }
    sum.x += __reduce_add_sync(0xffffffffu, others);
    return sum;
  }

  /// Calls emit(rank, code, token) for what `take` takes of a warp's part, in order.
  template <class Take, class Emit>
  __device__ __forceinline__ void emit_part(const ResidentRow& row, uint32_t floor, uint32_t rank,
                                            Take take, Emit emit) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    visit_part(row, floor, [&](const uint32_t(&four)[4], int token, int count) {
      uint32_t taken = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < count && take(four[j], token + j)) taken |= 1u << j;
      }
      if (!__any_sync(0xffffffffu, taken != 0)) return;
      uint32_t upto = __popc(taken);
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, upto, distance);
        if (lane >= distance) upto += other;
      }
      uint32_t place = rank + upto - __popc(taken);
#pragma unroll 1
      for (; taken != 0; taken &= taken - 1) {
        const int j = __ffs(static_cast<int>(taken)) - 1;
        const uint32_t low = (j & 1) != 0 ? four[1] : four[0];
        const uint32_t high = (j & 1) != 0 ? four[3] : four[2];
        emit(place++, j < 2 ? low : high, token + j);
      }
      rank += __shfl_sync(0xffffffffu, upto, 31);
    });
  }

  __device__ __forceinline__ void write_row(const Part& part, int number, int length,
                                            const RowCut& cut, const ResidentRow& scores_here,
                                            uint2 before) const {
    const OutputForm form = form_of(params.form, part.request);
    int32_t* const indices = form.indices + number * form.indices_stride;
    float* const scores =
        form.scores != nullptr ? form.scores + number * form.scores_stride : nullptr;
    emit_part(
        scores_here, cut.least, before.x,
        [&](uint32_t code, int token) { return cut.wins(code, token); },
        [&](uint32_t rank, uint32_t code, int token) {
          indices[rank] = map_index(form, number, 0, token);
          if (scores != nullptr) scores[rank] = numeric::score_of_code(code);
        });
    if (!part.leads) return;
#pragma unroll 1
    for (int i = length + static_cast<int>(threadIdx.x); i < form.topk; i += kScanThreads) {
      indices[i] = -1;
      if (scores != nullptr) scores[i] = __int_as_float(0x7fffffff);
    }
  }

  __device__ __forceinline__ void write_state(const Part& part, int length, const RowCut& cut,
                                              const ResidentRow& scores, uint2 before) const {
    uint32_t* const state = state_of(params.states, part.request);
    if (state == nullptr) return;
    const bool winners = cut.state == kNoCode;
    const auto count = winners ? static_cast<uint32_t>(min(step().topk, length)) : cut.states;
    emit_part(
        scores, winners ? cut.least : cut.state, winners ? before.x : before.y,
        [&](uint32_t code, int token) {
          return winners ? cut.wins(code, token) : code >= cut.state;
        },
        [&](uint32_t rank, uint32_t, int token) {
          state[1 + rank] = static_cast<uint32_t>(token);
        });
    if (part.leads && threadIdx.x == 0) state[0] = count;
  }

  __device__ __forceinline__ void write() const {
#pragma unroll 1
    for (int i = 0; i < shared.count; ++i) {
      const Part part = shared.parts[i];
      await(meeting_of(part), part.members(), shared.meetings[i]);
#pragma unroll 1
      for (int t = 0; t < step().next_n; ++t) {
        const PartRow& row = row_at(i, t);
        if (row.length == 0) continue;
        RowCut cut = row.cut;
        const ResidentRow scores = scores_of(part, t, row.length);
        const int number = row_number(part, t);
        const uint2 before = settle(part, number, scores, row.warp_counts, cut);
        write_row(part, number, row.length, cut, scores, before);
        if (t == part.state_query) write_state(part, row.length, cut, scores, before);
      }
    }
  }

  /// The last query of a request with a token to see; 0 where there is none.
  __device__ __forceinline__ int last_query(int b) const {
    int t = step().next_n - 1;
    while (t > 0 && numeric::row_length(step(), b, t) == 0) --t;
    return t;
  }

  /// Rows that are answered without a look at their keys; one warp calls this.
  __device__ __noinline__ void write_short() const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    for (int b = static_cast<int>(blockIdx.x); b < step().batch; b += static_cast<int>(gridDim.x)) {
      const int last = last_query(b);
#pragma unroll 1
      for (int t = 0; t < step().next_n; ++t) {
        const int length = numeric::row_length(step(), b, t);
        if (!numeric::is_short(step(), length)) continue;
        write_short_row(params.form, b, b * step().next_n + t, length, lane, 32);
        if (t == last) {
          write_short_state(state_of(params.states, b), length, lane, 32);
        }
      }
    }
  }
};

}  // namespace dosa::select
