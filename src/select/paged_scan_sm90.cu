// SPDX-License-Identifier: Apache-2.0
// One CTA per multiprocessor. A producer streams tiles of 64 keys into a ring; four warpgroups take
// tiles in turn, multiply them with all columns of the request and keep or store the scores. One
// more warp prepares the columns of the next segment, another raises thresholds.
#include "select/paged_scan_sm90.cuh"

#include "refine/paged_dispatch_sm90.cuh"
#include "select/paged_roles_sm90.cuh"

namespace dosa::select {
namespace {

template <class T_, class Producer_, ScanSink kSink_>
struct Config {
  using T = T_;
  using Producer = Producer_;
  static constexpr ScanSink kSink = kSink_;
  static constexpr int kEmptyArrivals = kScanThreads / 32 + 1;  // consumer warps, floor warp
  static_assert(Producer::kWarps <= kColumnWarp && kRingStages % Producer::kWarps == 0,
                "a stage always has the same producer");

  struct alignas(128) Control : RoleControl {
    ScheduleShared schedule;
    uint32_t wanted;    // a row has too many records: all consumers meet
    uint32_t done;      // warpgroups that are through with a segment, summed over segments
    uint32_t finished;  // segments
    RadixShared radix;
  };
};

/// Watches how many records come and raises the floors.
template <class C>
__device__ void raise_floors(const ScanParams& params, const Memory<C>& memory) {
  constexpr uint32_t kWorthALook = 32;  // records
  constexpr unsigned kPauseNs = 100;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  auto& control = *memory.control;
  for (SlotPlace place;; place.advance(memory.slots)) {
    gpu::barrier_wait(control.columns_full + place.slot, place.phase);
    SegmentSlot& slot = control.slots[place.slot];
    if (slot.end) return;
    uint32_t seen = 0;
    while (C::kSink == ScanSink::kRecord && slot.bins != nullptr &&
           read_volatile(control.finished) == place.number) {
      uint32_t count = 0;
      if (lane < params.step.next_n) count = read_volatile(slot.count[lane]);
      count = __reduce_add_sync(0xffffffffu, count);
      if (count - seen < kWorthALook) {
        __nanosleep(kPauseNs);
        continue;
      }
      seen = count;
      for (int t = 0; t < params.step.next_n; ++t) {
        raise_floor(slot, slot.bins + t * numeric::kFloorBins, t, params.step.topk);
        __syncwarp();
      }
    }
    __syncwarp();
    if (lane == 0) gpu::barrier_arrive(control.columns_empty + place.slot);
  }
}

template <class C>
__device__ __forceinline__ void store_scores(const ScanParams& params, const SegmentSlot& slot,
                                             const Tile& tile,
                                             const float (&scores)[C::T::kQueries][2],
                                             int first_query) {
  using Share = typename C::T::Share;
  const int c = static_cast<int>(threadIdx.x) & 3;
  const int query = first_query + Share::query(c);
  if (!Share::owns(c)) return;
  const int64_t row = static_cast<int64_t>(slot.segment.request) * params.step.next_n + query;
#pragma unroll
  for (int i = 0; i < Share::kValues; ++i) {
    const int token = tile.first_token + tile.lane_row + 8 * Share::half(c, i);
    if (token < slot.length[query]) {
      params.scores[row * params.scores_stride + token] = Share::pick(scores, c, i);
    }
  }
}

/// Appends the records that the warp's lanes keep to their rows and counts them.
template <class C>
__device__ __forceinline__ void append(const ScanParams& params, typename C::Control& control,
                                       SegmentSlot& slot, int query, const bool (&keep)[2],
                                       const uint64_t (&records)[2]) {
  constexpr int kClasses = C::T::Share::kClasses;
  constexpr uint32_t kPattern =
      kClasses == 1 ? 0xffffffffu : (kClasses == 2 ? 0x55555555u : 0x11111111u);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t own = kPattern << (lane % kClasses);
  const uint32_t votes[2] = {__ballot_sync(0xffffffffu, keep[0]) & own,
                             __ballot_sync(0xffffffffu, keep[1]) & own};
  const uint32_t more = __popc(votes[0]) + __popc(votes[1]);
  uint32_t base = 0;
  if (lane < kClasses && more != 0) {
    base = atomicAdd(&slot.count[query], more);
    if (base + more > static_cast<uint32_t>(params.found.reduce_from)) {
      *const_cast<volatile uint32_t*>(&control.wanted) = 1;
    }
  }
  base = __shfl_sync(0xffffffffu, base, lane % kClasses);
  const uint32_t before = (1u << lane) - 1;
  const uint32_t at[2] = {base + __popc(votes[0] & before),
                          base + __popc(votes[0]) + __popc(votes[1] & before)};
  uint64_t* const memory = slot.records + static_cast<int64_t>(query) * params.found.capacity;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!keep[i]) continue;
    memory[at[i]] = records[i];
    if (slot.bins == nullptr) continue;
    const int bin = numeric::bin_of(slot.known[query].bins(), numeric::record_score(records[i]),
                                    numeric::kFloorBins - 1);
    atomicAdd(slot.bins + query * numeric::kFloorBins + bin, 1u);
  }
}

template <class C>
__device__ __forceinline__ void keep_scores(const ScanParams& params, typename C::Control& control,
                                            SegmentSlot& slot, const Tile& tile,
                                            const float (&scores)[C::T::kQueries][2],
                                            int first_query) {
  using Share = typename C::T::Share;
  const int c = static_cast<int>(threadIdx.x) & 3;
  const int query = first_query + Share::query(c);
  const uint64_t floor_record = read_volatile(slot.floor[query]);
  const float floor = numeric::score_of_code(static_cast<uint32_t>(floor_record >> 32));
  const int length = slot.length[query];
  float value[2];
  int token[2];
  bool keep[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    value[i] = i < Share::kValues ? Share::pick(scores, c, i) : 0.0f;
    token[i] = tile.first_token + tile.lane_row + 8 * Share::half(c, i);
    const bool forced =
        token[i] < params.step.forced_first || token[i] >= length - params.step.forced_last;
    if (forced) value[i] = __int_as_float(0x7f800000);
    keep[i] = i < Share::kValues && Share::owns(c) && token[i] < length && !(value[i] < floor);
  }
  if (!__any_sync(0xffffffffu, keep[0] || keep[1])) return;
  uint64_t records[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    records[i] = numeric::make_record(value[i], token[i]);
    keep[i] = keep[i] && records[i] > floor_record;
  }
  append<C>(params, control, slot, query, keep, records);
}

/// All consumers meet; where a row has too many records it is reduced.
/// Returns how many warpgroups are through with their segments.
template <class C>
__device__ uint32_t meet(const ScanParams& params, typename C::Control& control,
                         SegmentSlot& slot) {
  ScanTeam::sync();
  const uint32_t wanted = read_volatile(control.wanted);
  const uint32_t done = read_volatile(control.done);
  ScanTeam::sync();
  if (wanted == 0) return done;
  for (int t = 0; t < params.step.next_n; ++t) {
    if (slot.count[t] <= static_cast<uint32_t>(params.found.reduce_from)) continue;
    reduce_row(control.radix, slot, t,
               slot.records + static_cast<int64_t>(t) * params.found.capacity, params.step.topk);
  }
  if (threadIdx.x == 0) *const_cast<volatile uint32_t*>(&control.wanted) = 0;
  ScanTeam::sync();
  return done;
}

/// Leaves what the selection needs to know.
template <class C>
__device__ void close_segment(const ScanParams& params, const SegmentSlot& slot) {
  const int t = static_cast<int>(threadIdx.x);
  const int b = slot.segment.request;
  const int cta = static_cast<int>(blockIdx.x);
  if (t < params.step.next_n) {
    const int64_t number = static_cast<int64_t>(b) + cta;
    params.found.counts[number * params.step.next_n + t] = slot.count[t];
  }
  if (t != 0) return;
  if (slot.segment.first == 0) params.found.ctas[b].x = cta;
  if (slot.segment.end == slot.segment.request_tiles) params.found.ctas[b].y = cta;
}

template <class C>
__device__ void consume(const ScanParams& params, const Memory<C>& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int team = __shfl_sync(0xffffffffu, thread / 128, 0);
  auto& control = *memory.control;
  RingPlace ring;
  ring.advance(team);
  int turn = team;  // tiles until this warpgroup's next one
  for (SlotPlace place;; place.advance(memory.slots)) {
    gpu::barrier_wait(control.columns_full + place.slot, place.phase);
    SegmentSlot& slot = control.slots[place.slot];
    if (slot.end) return;
    const int end = slot.segment.end;
    int tile_number = slot.segment.first + turn;
    for (; tile_number < end; tile_number += kTeams) {
      gpu::barrier_wait(memory.ring.full + ring.stage, ring.phase);
      Tile tile(tile_number);
      score_tile<C>(params, memory, place.slot, ring.stage, tile,
                    [&](const float(&scores)[C::T::kQueries][2], int first_query) {
                      if constexpr (C::kSink == ScanSink::kStore) {
                        store_scores<C>(params, slot, tile, scores, first_query);
                      } else {
                        keep_scores<C>(params, control, slot, tile, scores, first_query);
                      }
                    });
      ring.advance(kTeams);
      if constexpr (C::kSink == ScanSink::kRecord) {
        const bool wanted = read_volatile(control.wanted) != 0;
        if (gpu::named_barrier_or(kTeamBarrier + team, 128, wanted)) {
          meet<C>(params, control, slot);
        }
      }
    }
    turn = tile_number - end;
    if constexpr (C::kSink == ScanSink::kRecord) {
      if (thread % 128 == 0) atomicAdd(&control.done, 1u);
      while (meet<C>(params, control, slot) != kTeams * (place.number + 1)) {
      }
      filter_segment(params, control.radix, slot);
      close_segment<C>(params, slot);
      if (thread == 0) *const_cast<volatile uint32_t*>(&control.finished) = place.number + 1;
    }
    __syncwarp();
    if ((thread & 31) == 0) gpu::barrier_arrive(control.columns_empty + place.slot);
  }
}

template <class C>
__global__ void __launch_bounds__(kRoleThreads, 1)
    paged_scan_sm90_e4m3_kernel(const __grid_constant__ ScanParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  const Memory<C> memory(params, shared_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  gpu::grid_launch_dependents();
  set_up_roles<C>(params, *memory.control);
  if (thread == 0) {
    memory.control->wanted = 0;
    memory.control->done = 0;
    memory.control->finished = 0;
  }
  const SegmentWalk walk = find_share<kRoleThreads>(params.step, memory.control->schedule);
  if (thread < kScanThreads) {
    consume<C>(params, memory);
    return;
  }
  const int warp = __shfl_sync(0xffffffffu, (thread - kScanThreads) / 32, 0);
  if (warp == kColumnWarp) {
    prepare_columns<C>(params, memory, walk);
  } else if (warp == kSpareWarp) {
    raise_floors<C>(params, memory);
  } else if (warp < C::Producer::kWarps) {
    C::Producer::run(params, memory.ring, walk, warp);
  }
}

template <class C>
cudaError_t launch_config(ScanParams params, int multiprocessors, cudaStream_t stream) {
  constexpr int kMostBytes = 227 * 1024;
  const int tiles = refine::column_tiles<typename C::T>(params.step.next_n);
  params.slots = kMostSlots;
  if (Memory<C>::bytes(params.slots, tiles) > kMostBytes) params.slots = 1;
  const int bytes = Memory<C>::bytes(params.slots, tiles);
  if (bytes > kMostBytes) return cudaErrorInvalidValue;
  const auto kernel = paged_scan_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(multiprocessors < kMostScanCtas ? multiprocessors : kMostScanCtas);
  config.blockDim = dim3(kRoleThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = params.dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}

template <ScanSink kSink>
cudaError_t launch_sink(const ScanParams& params, int padded_heads, int multiprocessors,
                        cudaStream_t stream) {
  return refine::with_column_tile(padded_heads, params.step.next_n, [&](auto tile) {
    using T = decltype(tile);
    return params.mapped
               ? launch_config<Config<T, MappedProducer, kSink>>(params, multiprocessors, stream)
               : launch_config<Config<T, GatherProducer, kSink>>(params, multiprocessors, stream);
  });
}

}  // namespace

cudaError_t launch_paged_scan_sm90(const ScanParams& params, int padded_heads, ScanSink sink,
                                   int multiprocessors, cudaStream_t stream) {
  return sink == ScanSink::kStore
             ? launch_sink<ScanSink::kStore>(params, padded_heads, multiprocessors, stream)
             : launch_sink<ScanSink::kRecord>(params, padded_heads, multiprocessors, stream);
}

}  // namespace dosa::select
