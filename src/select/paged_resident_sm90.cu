// SPDX-License-Identifier: Apache-2.0
// A scan whose CTAs keep all their scores in shared memory, and meet afterwards to find the answer.
// All CTAs are on the card at once (a cooperative launch), or they could not wait for each other.
#include "select/paged_resident_sm90.cuh"

#include <algorithm>

#include "refine/paged_dispatch_sm90.cuh"
#include "select/paged_answer_sm90.cuh"
#include "select/paged_meeting_sm90.cuh"
#include "select/paged_roles_sm90.cuh"

namespace dosa::select {
namespace {

template <class T_, class Producer_>
struct Config {
  using T = T_;
  using Producer = Producer_;
  static constexpr int kEmptyArrivals = kScanWarps;
  static_assert(Producer::kWarps <= kColumnWarp && kRingStages % Producer::kWarps == 0,
                "a stage always has the same producer");
  static_assert(kTeams * kSamplingWarps == kScanWarps, "one warpgroup samples");

  struct alignas(128) Control : RoleControl {
    RoundShare shares[kMostRounds];
    AnswerShared answer;
  };
};

/// Stores a tile's scores, `place` tiles behind the first one of the share.
template <class C>
__device__ __forceinline__ void keep_scores(const ResidentParams& params, const SegmentSlot& slot,
                                            const Tile& tile, uint32_t* codes, bool samples,
                                            const float (&scores)[C::T::kQueries][2],
                                            int first_query) {
  using Share = typename C::T::Share;
  const numeric::PagedStep& step = params.scan.step;
  const int c = static_cast<int>(threadIdx.x) & 3;
  const int query = first_query + Share::query(c);
  const bool owns = Share::owns(c) && query < step.next_n;
  const int length = slot.length[query];
  RowSample* const sample =
      query < step.next_n
          ? params.rows.samples + static_cast<int64_t>(slot.segment.request) * step.next_n + query
          : nullptr;
#pragma unroll
  for (int i = 0; i < Share::kValues; ++i) {
    const int row = tile.lane_row + 8 * Share::half(c, i);
    const int token = tile.first_token + row;
    float score = Share::pick(scores, c, i);
    const bool forced = token < step.forced_first || token >= length - step.forced_last;
    if (forced) score = __int_as_float(0x7f800000);
    if (owns) codes[query * params.room + row] = numeric::order_code(score);
    if (samples) add_sample<Share::kClasses>(sample, owns && token < length, score);
  }
}

/// Where a consumer warpgroup stands.
struct ConsumerPlace {
  RingPlace ring;
  SlotPlace slots;
  int turn;  // tiles until its next one
};

/// Scores this CTA's share of a round, so many tiles.
template <class C>
__device__ __forceinline__ void score_share(const ResidentParams& params, const Memory<C>& memory,
                                            int tiles, ConsumerPlace& at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  auto& control = *memory.control;
  for (int place = 0; place < tiles;) {
    gpu::barrier_wait(control.columns_full + at.slots.slot, at.slots.phase);
    const SegmentSlot& slot = control.slots[at.slots.slot];
    const int first = slot.segment.first;
    const int end = slot.segment.end;
    int number = first + at.turn;
    for (; number < end; number += kTeams) {
      gpu::barrier_wait(memory.ring.full + at.ring.stage, at.ring.phase);
      Tile tile(number);
      uint32_t* const codes = memory.rest + (place + number - first) * numeric::kTokenTile;
      const bool samples = number == first;
      score_tile<C>(params.scan, memory, at.slots.slot, at.ring.stage, tile,
                    [&](const float(&scores)[C::T::kQueries][2], int first_query) {
                      keep_scores<C>(params, slot, tile, codes, samples, scores, first_query);
                    });
      at.ring.advance(kTeams);
      if (samples && lane == 0) {
        gpu::red_release(&params.rows.meetings[slot.segment.request].sampled, 1);
      }
    }
    at.turn = number - end;
    place += end - first;
    __syncwarp();
    if (lane == 0) gpu::barrier_arrive(control.columns_empty + at.slots.slot);
    at.slots.advance(memory.slots);
  }
}

constexpr int kPreparedBarrier = 6;  // named: the spare warp has prepared a round's answer
constexpr int kPreparedThreads = kScanThreads + 32;

template <class C>
__device__ void consume(const ResidentParams& params, const Memory<C>& memory,
                        const Answer& answer) {
  const int team = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  ConsumerPlace at{{}, {}, team};
  at.ring.advance(team);
  for (int round = 0; round < params.rounds; ++round) {
    const int tiles = memory.control->shares[round].walk.left;
    if (tiles == 0) continue;
    score_share<C>(params, memory, tiles, at);
    gpu::named_barrier_sync(kPreparedBarrier, kPreparedThreads);
    answer.count();
    answer.cut();
    answer.write();
    ScanTeam::sync();  // the next round's scores take the place of these
  }
}

/// What the spare warp does while the others score.
template <class C>
__device__ void prepare_answers(const ResidentParams& params, const Memory<C>& memory,
                                const Answer& answer) {
  gpu::grid_dependency_wait();
  answer.write_short();
  for (int round = 0; round < params.rounds; ++round) {
    const MeetingWalk walk(memory.control->shares[round]);
    if (walk.walk.left == 0) continue;
    publish_bins(params, walk);
    answer.prepare(walk);
    gpu::named_barrier_arrive(kPreparedBarrier, kPreparedThreads);
  }
}

template <class C>
__global__ void __launch_bounds__(kRoleThreads, 1)
    paged_resident_sm90_e4m3_kernel(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  const Memory<C> memory(params.scan, shared_bytes);
  const numeric::PagedStep& step = params.scan.step;
  const int thread = static_cast<int>(threadIdx.x);
  gpu::grid_launch_dependents();
  set_up_roles<C>(params.scan, *memory.control);
  for (int round = thread / 32; round < params.rounds; round += kRoleThreads / 32) {
    const int begin = round * params.requests;
    const RoundShare share =
        find_round_share(step, begin, min(begin + params.requests, step.batch));
    if (thread % 32 == 0) memory.control->shares[round] = share;
  }
  __syncthreads();
  const Answer answer{params, memory.control->answer, memory.rest};
  if (thread < kScanThreads) {
    consume<C>(params, memory, answer);
    return;
  }
  const RoundsWalk walk(memory.control->shares, params.rounds);
  const int warp = __shfl_sync(0xffffffffu, (thread - kScanThreads) / 32, 0);
  if (warp == kColumnWarp) {
    prepare_columns<C>(params.scan, memory, walk);
  } else if (warp == kSpareWarp) {
    prepare_answers<C>(params, memory, answer);
  } else if (warp < C::Producer::kWarps) {
    C::Producer::run(params.scan, memory.ring, walk, warp);
  }
}

constexpr int kResetThreads = 512;

/// One CTA per row sets to zero what the members of its request write together.
__global__ void __launch_bounds__(kResetThreads)
    paged_reset_sm90_kernel(const ResidentRows rows, int next_n) {
  // First all work before this call is done, then the scan may start: it reads lengths at once.
  gpu::grid_dependency_wait();
  gpu::grid_launch_dependents();
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kCleared = 2 * kBins / 4;  // the first two histograms, four bins at a time
  auto* const bins = reinterpret_cast<uint4*>(rows.histograms + static_cast<int64_t>(row) *
                                                                    (kResidentHistograms * kBins));
  for (int i = thread; i < kCleared; i += kResetThreads) bins[i] = make_uint4(0, 0, 0, 0);
  if (thread == 0) {
    rows.samples[row] = {};
    if (row % next_n == 0) rows.meetings[row / next_n] = {};
  }
}

cudaError_t launch_reset(const ResidentParams& params, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(params.scan.step.batch * params.scan.step.next_n);
  config.blockDim = dim3(kResetThreads);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, paged_reset_sm90_kernel, params.rows, params.scan.step.next_n);
}

int count_ctas(int multiprocessors) {
  return multiprocessors < kMostScanCtas ? multiprocessors : kMostScanCtas;
}

constexpr int kMostBytes = 227 * 1024;

/// How a step is cut into rounds.
struct RoundPlan {
  int requests;  // of a round; 0: it cannot be
  int rounds;
  int room;   // scores of a row that a CTA has room for
  int slots;  // segments whose columns are in shared memory
  int bytes;  // of shared memory
};

template <class C>
RoundPlan plan_rounds(int next_n, int64_t batch, int64_t tokens, int multiprocessors) {
  const int64_t ctas = count_ctas(multiprocessors);
  const int columns = refine::column_tiles<typename C::T>(next_n);
  const int64_t tiles = (tokens + numeric::kTokenTile - 1) / numeric::kTokenTile;  // of a request
  const int64_t tile_bytes = numeric::kTokenTile * next_n * static_cast<int64_t>(sizeof(uint32_t));
  for (int slots = kMostSlots; slots > 0; --slots) {
    const int fixed = Memory<C>::bytes(slots, columns);
    if (fixed > kMostBytes || batch == 0) continue;
    const int64_t room = (kMostBytes - fixed) / tile_bytes * ctas;  // tiles
    const int64_t most = tiles > 0 ? room / tiles : batch;
    const int64_t requests = std::min({most, batch, int64_t{kMostResidentRows} / next_n});
    if (requests == 0) continue;
    const int64_t rounds = (batch + requests - 1) / requests;
    if (rounds > kMostRounds) continue;
    const int64_t even = (batch + rounds - 1) / rounds;
    const int64_t share = (even * tiles + ctas - 1) / ctas;
    return {static_cast<int>(even), static_cast<int>(rounds),
            static_cast<int>(share * numeric::kTokenTile), slots,
            static_cast<int>(fixed + share * tile_bytes)};
  }
  return {};
}

template <class C>
cudaError_t launch_config(ResidentParams params, int multiprocessors, cudaStream_t stream) {
  const numeric::PagedStep& step = params.scan.step;
  const RoundPlan plan = plan_rounds<C>(step.next_n, step.batch, step.max_context, multiprocessors);
  if (plan.requests == 0) return cudaErrorInvalidValue;
  params.room = plan.room;
  params.requests = plan.requests;
  params.rounds = plan.rounds;
  params.scan.slots = plan.slots;
  const auto kernel = paged_resident_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(count_ctas(multiprocessors));
  config.blockDim = dim3(kRoleThreads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

int count_resident_rounds(int padded_heads, int next_n, int64_t batch, int64_t tokens,
                          int multiprocessors) {
  if (batch * next_n > kMostStepRows) return 0;
  int rounds = 0;
  const auto visit = [&](auto tile) {
    using C = Config<decltype(tile), MappedProducer>;
    rounds = plan_rounds<C>(next_n, batch, tokens, multiprocessors).rounds;
    return cudaSuccess;
  };
  return refine::with_column_tile(padded_heads, next_n, visit) == cudaSuccess ? rounds : 0;
}

cudaError_t launch_paged_resident_sm90(const ResidentParams& params, int padded_heads,
                                       int multiprocessors, cudaStream_t stream) {
  const cudaError_t status = launch_reset(params, stream);
  if (status != cudaSuccess) return status;
  return refine::with_column_tile(padded_heads, params.scan.step.next_n, [&](auto tile) {
    using T = decltype(tile);
    return params.scan.mapped
               ? launch_config<Config<T, MappedProducer>>(params, multiprocessors, stream)
               : launch_config<Config<T, GatherProducer>>(params, multiprocessors, stream);
  });
}

}  // namespace dosa::select
