// SPDX-License-Identifier: Apache-2.0
// A cluster of eight CTAs takes a request: each scores a share of the tokens, then each finds the
// threshold of one row among all codes.
#include "select/paged_witness_sm90.cuh"

#include "refine/paged_dispatch_sm90.cuh"
#include "refine/paged_operands_sm90.cuh"
#include "select/radix_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {
namespace {

using numeric::kTokenTile;
using numeric::PagedStep;

template <class T_>
struct Config {
  using T = T_;
  static constexpr int kCluster = 8;
  static constexpr int kTeams = 2;  // warpgroups, each with tiles of its own
  static constexpr int kThreads = kTeams * 128;
  static constexpr int kRound = 3;  // tiles in flight per team: K = 2048 takes one round
  static constexpr int kTileStride = kCluster * kTeams;
  static constexpr int kMostIds = kMaxTopk + kMaxTopk / 2;
  static_assert(kCluster >= numeric::kMostNextN, "a CTA for each row's threshold");
};

template <class C>
struct SharedStorage {
  union {
    alignas(1024) uint8_t keys[C::kTeams][C::kRound][kTokenTile * 128];  // 128B swizzle
    uint32_t words[C::kMostIds];  // the state as it is read, later a row's codes
  };
  alignas(16) float weights[numeric::kMostNextN][C::T::kWeightFloats];
  float scales[C::kTeams][C::kRound][kTokenTile];
  int ids[C::kMostIds];
  int lengths[numeric::kMostNextN];
  uint32_t warp_values[C::kThreads / 32];
  uint32_t least;
  uint32_t greatest;
  uint32_t valid;
  RadixShared radix;
};

/// What one thread has been through: the combination of all threads before it.
template <int kThreads, class Combine>
__device__ uint32_t exclusive_scan(uint32_t* warp_values, uint32_t value, Combine combine) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & 31;
  uint32_t upto = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto = combine(upto, other);
  }
  uint32_t before = __shfl_up_sync(0xffffffffu, upto, 1);
  if (lane == 0) before = 0;
  __syncthreads();
  if (lane == 31) warp_values[thread / 32] = upto;
  __syncthreads();
  for (int warp = 0; warp < thread / 32; ++warp) before = combine(before, warp_values[warp]);
  return before;
}

/// The ids of the state that are tokens below `length` and greater than all such ids before them:
/// distinct and ascending whatever the state holds. Fills shared.ids; returns how many.
template <class C>
__device__ int read_state(SharedStorage<C>& shared, const uint32_t* state, int capacity,
                          int length) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t stated = state[0];
  // All of them: the count is still on its way.
  for (int i = thread; i < capacity; i += C::kThreads) shared.words[i] = state[1 + i];
  const int stored = stated < static_cast<uint32_t>(capacity) ? static_cast<int>(stated) : capacity;
  __syncthreads();
  const int share = (stored + C::kThreads - 1) / C::kThreads;
  const int begin = thread * share;
  const int end = begin + share < stored ? begin + share : stored;
  const uint32_t limit = static_cast<uint32_t>(length);
  uint32_t greatest = 0;  // one more than the greatest id
  for (int i = begin; i < end; ++i) {
    const uint32_t id = shared.words[i];
    if (id < limit && id + 1 > greatest) greatest = id + 1;
  }
  const uint32_t before = exclusive_scan<C::kThreads>(
      shared.warp_values, greatest, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
  uint32_t running = before;
  uint32_t kept = 0;
  for (int i = begin; i < end; ++i) {
    const uint32_t id = shared.words[i];
    if (id >= limit || id < running) continue;
    running = id + 1;
    ++kept;
  }
  uint32_t at = exclusive_scan<C::kThreads>(shared.warp_values, kept,
                                            [](uint32_t a, uint32_t b) { return a + b; });
  if (thread == C::kThreads - 1) shared.valid = at + kept;
  running = before;
  for (int i = begin; i < end; ++i) {
    const uint32_t id = shared.words[i];
    if (id >= limit || id < running) continue;
    running = id + 1;
    shared.ids[at++] = static_cast<int>(id);
  }
  __syncthreads();
  return static_cast<int>(shared.valid);
}

/// Fills shared.ids with the tokens that are scored first; returns how many.
template <class C>
__device__ int pick_tokens(const WitnessParams& params, SharedStorage<C>& shared, int b,
                           int length) {
  const int capacity = witness_capacity(params.step.topk);
  const uint32_t* const state = params.use_states ? state_of(params.states, b) : nullptr;
  int count = state != nullptr ? read_state<C>(shared, state, capacity, length) : 0;
  if (count >= params.step.topk) return count;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < capacity; i += C::kThreads) {
    shared.ids[i] = static_cast<int>(static_cast<int64_t>(i) * length / capacity);
  }
  __syncthreads();
  return capacity;
}

/// Tile of a team in a round, and its turn.
template <class C>
__device__ __forceinline__ int tile_of(int round, int turn) {
  const int team = static_cast<int>(threadIdx.x) / 128;
  return (round * C::kRound + turn) * C::kTileStride + gpu::cluster_rank() * C::kTeams + team;
}

/// Starts the copies of this team's tiles of a round.
template <class C>
__device__ void gather_round(const PagedStep& step, SharedStorage<C>& shared, int b, int round,
                             int count) {
  constexpr int kPerWarp = kTokenTile / 4;
  const int thread = static_cast<int>(threadIdx.x);
  const int team = thread / 128;
  const int first_row = thread % 128 / 32 * kPerWarp;
  const int lane = thread & 31;
  int tokens[C::kRound];
  const uint8_t* keys[C::kRound];
#pragma unroll
  for (int turn = 0; turn < C::kRound; ++turn) {
    const int at = tile_of<C>(round, turn) * kTokenTile + first_row + lane;
    const bool listed = lane < kPerWarp && at < count;
    tokens[turn] = listed ? shared.ids[at] : 0;
    const int page = listed ? numeric::page_of(step, b, tokens[turn] >> step.page_shift) : -1;
    keys[turn] = refine::find_key(step, page, tokens[turn]);
  }
#pragma unroll
  for (int turn = 0; turn < C::kRound; ++turn) {
    refine::gather_keys<kPerWarp>(step, keys[turn], tokens[turn], shared.keys[team][turn],
                                  shared.scales[team][turn], first_row);
  }
  gpu::copy_async_commit();
}

/// Scores a tile for all rows of the request and writes the codes.
template <class C>
__device__ void score_tile(const WitnessParams& params, SharedStorage<C>& shared,
                           const uint8_t* columns, int b, int turn, int tile, int count) {
  using T = typename C::T;
  using Share = typename T::Share;
  const int thread = static_cast<int>(threadIdx.x);
  const int team = thread / 128;
  const int c = thread & 3;
  const int lane_row = thread % 128 / 32 * 16 + (thread & 31) / 4;
  const int capacity = witness_capacity(params.step.topk);
  const float scales[2] = {shared.scales[team][turn][lane_row],
                           shared.scales[team][turn][lane_row + 8]};
  const int tiles = refine::column_tiles<T>(params.step.next_n);
  for (int column_tile = 0; column_tile < tiles; ++column_tile) {
    __syncwarp();  // lanes part below, the products need all of them
    float products[T::kProducts];
    refine::start_products(products, gpu::matrix_descriptor(shared.keys[team][turn]),
                           gpu::matrix_descriptor(columns + column_tile * T::kBytes));
    float weights[T::kWeights];
    refine::read_class_weights(shared.weights[column_tile] + c * refine::kClassStride, weights);
    refine::finish_products(products);
    float scores[T::kQueries][2];
    T::Chain::scores(products, weights, scales, scores);
    const int query = column_tile * T::kQueries + Share::query(c);
    if (query >= params.step.next_n || !Share::owns(c)) continue;
    uint32_t* const codes =
        params.results.codes + (static_cast<int64_t>(b) * params.step.next_n + query) * capacity;
#pragma unroll
    for (int i = 0; i < Share::kValues; ++i) {
      const int at = tile * kTokenTile + lane_row + 8 * Share::half(c, i);
      if (at >= count) continue;
      const bool visible = shared.ids[at] < shared.lengths[query];
      codes[at] = visible ? numeric::order_code(Share::pick(scores, c, i)) : 0;
    }
  }
}

/// A code that at least K of the `count` codes reach, as high as 22 bits tell, and the bins above
/// it.
template <class C>
__device__ numeric::RowFloor find_floor(SharedStorage<C>& shared, const uint32_t* codes, int count,
                                        int topk) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    shared.least = ~0u;
    shared.greatest = 0;
    shared.valid = 0;
  }
  __syncthreads();
  uint32_t least = ~0u;
  uint32_t greatest = 0;
  uint32_t valid = 0;
  for (int i = thread; i < count; i += C::kThreads) {
    const uint32_t code = __ldcg(codes + i);
    shared.words[i] = code;
    if (code == 0) continue;
    least = min(least, code);
    greatest = max(greatest, code);
    ++valid;
  }
  least = __reduce_min_sync(0xffffffffu, least);
  greatest = __reduce_max_sync(0xffffffffu, greatest);
  valid = __reduce_add_sync(0xffffffffu, valid);
  if ((thread & 31) == 0) {
    atomicMin(&shared.least, least);
    atomicMax(&shared.greatest, greatest);
    atomicAdd(&shared.valid, valid);
  }
  __syncthreads();
  least = shared.least;
  greatest = shared.greatest;
  if (shared.valid < static_cast<uint32_t>(topk)) return {0, 32 - 10};
  int top = 32 - __clz(static_cast<int>(least ^ greatest));  // bits in which codes differ
  uint32_t prefix = top == 32 ? 0 : greatest >> top << top;
  uint32_t needed = static_cast<uint32_t>(topk);
  for (int pass = 0; pass < 2 && top > 0; ++pass) {
    const int shift = top > kDigitBits ? top - kDigitBits : 0;
    const uint32_t mask = (1u << (top - shift)) - 1;
    for (int i = thread; i < kBins; i += C::kThreads) shared.radix.histogram[i] = 0;
    __syncthreads();
    for (int i = thread; i < count; i += C::kThreads) {
      const uint32_t code = shared.words[i];
      const bool match = code != 0 && (top == 32 || code >> top == prefix >> top);
      if (match) atomicAdd(&shared.radix.histogram[code >> shift & mask], 1u);
    }
    __syncthreads();
    find_bin<C::kThreads>(shared.radix, needed);
    prefix |= shared.radix.bin << shift;
    needed = shared.radix.needed;
    const bool whole = shared.radix.in_bin == needed;
    top = shift;
    __syncthreads();
    if (whole) break;
  }
  constexpr int kBinBits = 10;
  static_assert(1 << kBinBits == numeric::kFloorBins, "bins cover what lies above the floor");
  const int span = 32 - __clz(static_cast<int>(greatest - prefix));
  return {prefix, static_cast<uint32_t>(span > kBinBits ? span - kBinBits : 0)};
}

template <class C>
__device__ void visit_request(const WitnessParams& params, SharedStorage<C>& shared,
                              uint8_t* columns, int b) {
  const PagedStep& step = params.step;
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = gpu::cluster_rank();
  const int length = numeric::scan_length(step, b);
  const int64_t first_row = static_cast<int64_t>(b) * step.next_n;
  numeric::RowFloor* const floors = params.results.floors + first_row;
  if (params.results.bins != nullptr && rank < step.next_n) {
    uint32_t* const bins = params.results.bins + (first_row + rank) * numeric::kFloorBins;
    for (int i = thread; i < numeric::kFloorBins; i += C::kThreads) bins[i] = 0;
  }
  if (!worth_witnesses(length, step.topk)) {
    if (rank == 0 && thread < step.next_n) floors[thread] = {0, 32 - 10};
    return;
  }
  refine::load_columns<typename C::T>(step, b, columns, shared.weights[0], thread, C::kThreads);
  if (thread < step.next_n) shared.lengths[thread] = numeric::row_length(step, b, thread);
  const int capacity = witness_capacity(step.topk);
  const int count = pick_tokens<C>(params, shared, b, length);
  const int tiles = (count + kTokenTile - 1) / kTokenTile;
  for (int round = 0; round * C::kRound * C::kTileStride < tiles; ++round) {
    gather_round<C>(step, shared, b, round, count);
    gpu::copy_async_wait<0>();
    gpu::fence_proxy_async();
    __syncthreads();
    for (int turn = 0; turn < C::kRound; ++turn) {
      const int tile = tile_of<C>(round, turn);
      if (tile < tiles) score_tile<C>(params, shared, columns, b, turn, tile, count);
    }
    __syncthreads();
  }
  gpu::cluster_sync();
  if (rank < step.next_n) {
    const uint32_t* const codes = params.results.codes + (first_row + rank) * capacity;
    const numeric::RowFloor floor = find_floor<C>(shared, codes, count, step.topk);
    if (thread == 0) floors[rank] = floor;
  }
  __syncthreads();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads)
    paged_witness_sm90_e4m3_kernel(const __grid_constant__ WitnessParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  // The columns, whose number depends on the call, begin at a multiple of their swizzle.
  auto& shared = *reinterpret_cast<SharedStorage<C>*>(
      shared_bytes + refine::column_tiles<typename C::T>(params.step.next_n) * C::T::kBytes);
  gpu::grid_launch_dependents();
  const int clusters = static_cast<int>(gridDim.x) / C::kCluster;
  for (int b = static_cast<int>(blockIdx.x) / C::kCluster; b < params.step.batch; b += clusters) {
    visit_request<C>(params, shared, shared_bytes, b);
  }
}

template <class T>
cudaError_t launch_tile(const WitnessParams& params, int multiprocessors, cudaStream_t stream) {
  using C = Config<T>;
  const int bytes = refine::column_tiles<T>(params.step.next_n) * T::kBytes +
                    static_cast<int>(sizeof(SharedStorage<C>));
  const auto kernel = paged_witness_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  const int most = multiprocessors / C::kCluster * 2;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(C::kCluster * (params.step.batch < most ? params.step.batch : most));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {C::kCluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace

cudaError_t launch_paged_witness_sm90(const WitnessParams& params, int padded_heads,
                                      int multiprocessors, cudaStream_t stream) {
  return refine::with_column_tile(padded_heads, params.step.next_n, [&](auto tile) {
    return launch_tile<decltype(tile)>(params, multiprocessors, stream);
  });
}

}  // namespace dosa::select
