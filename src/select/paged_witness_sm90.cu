// SPDX-License-Identifier: Apache-2.0
// A cluster of CTAs, fewer the more requests there are, takes a request: each scores a share of the
// tokens, then each finds thresholds of rows among all codes.
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
  static constexpr int kTeams = 4;  // warpgroups, each with tiles of its own
  static constexpr int kThreads = kTeams * 128;
  static constexpr int kRound = 2;  // tiles in flight per team: K = 2048 takes one round
  static constexpr int kPerThread = (kMaxTopk + kMaxTopk / 2) / kThreads;  // codes of a row
  static_assert(kPerThread * kThreads == kMaxTopk + kMaxTopk / 2, "threads hold all codes");
};

template <class C>
struct SharedStorage {
  alignas(1024) uint8_t keys[C::kTeams][C::kRound][kTokenTile * 128];  // 128B swizzle
  alignas(16) float weights[numeric::kMostNextN][C::T::kWeightFloats];
  float scales[C::kTeams][C::kRound][kTokenTile];
  int tokens[C::kTeams][C::kRound][kTokenTile];  // -1: none
  int lengths[numeric::kMostNextN];
  uint32_t least;
  uint32_t greatest;
  uint32_t valid;
  RadixShared radix;
};

/// The tokens that are scored: words of a state, or spread evenly.
struct TokenSource {
  const uint32_t* ids;  // null: spread
  int count;
  int length;

  /// Token number `at`, or -1; notes where the state is not ascending.
  __device__ __forceinline__ int token(int at, bool& broken) const {
    if (at >= count) return -1;
    if (ids == nullptr) return static_cast<int>(static_cast<int64_t>(at) * length / count);
    const uint32_t id = ids[at];
    const uint32_t before = at > 0 ? ids[at - 1] : 0;
    if (at > 0 && id <= before) broken = true;
    return id < static_cast<uint32_t>(length) ? static_cast<int>(id) : -1;
  }
};

/// The state where it has K visible tokens, provided that it ascends; else spread tokens.
__device__ __forceinline__ TokenSource pick_source(const WitnessParams& params, int b, int length) {
  const int topk = params.step.topk;
  const int capacity = witness_capacity(topk);
  const uint32_t* const state = params.use_states ? state_of(params.states, b) : nullptr;
  if (state != nullptr) {
    const uint32_t stated = state[0];
    const uint32_t last_needed = state[topk];
    const int stored =
        stated < static_cast<uint32_t>(capacity) ? static_cast<int>(stated) : capacity;
    if (stored >= topk && last_needed < static_cast<uint32_t>(length)) {
      return {state + 1, stored, length};
    }
  }
  return {nullptr, capacity, length};
}

/// Tile of a team in a round of `ctas` CTAs, and its turn.
template <class C>
__device__ __forceinline__ int tile_of(int ctas, int round, int turn) {
  const int team = static_cast<int>(threadIdx.x) / 128;
  return (round * C::kRound + turn) * ctas * C::kTeams + gpu::cluster_rank() * C::kTeams + team;
}

/// Starts the copies of this team's tiles of a round; returns whether the state is not ascending.
template <class C>
__device__ bool gather_round(const WitnessParams& params, SharedStorage<C>& shared, int b,
                             int round, const TokenSource& source) {
  const PagedStep& step = params.step;
  constexpr int kPerWarp = kTokenTile / 4;
  const int thread = static_cast<int>(threadIdx.x);
  const int team = thread / 128;
  const int first_row = thread % 128 / 32 * kPerWarp;
  const int lane = thread & 31;
  bool broken = false;
  int tokens[C::kRound];
  const uint8_t* keys[C::kRound];
#pragma unroll
  for (int turn = 0; turn < C::kRound; ++turn) {
    const int at = tile_of<C>(params.ctas, round, turn) * kTokenTile + first_row + lane;
    tokens[turn] = lane < kPerWarp ? source.token(at, broken) : -1;
  }
#pragma unroll
  for (int turn = 0; turn < C::kRound; ++turn) {
    const int token = tokens[turn];
    const int page = token >= 0 ? numeric::page_of(step, b, token >> step.page_shift) : -1;
    keys[turn] = refine::find_key(step, page, token);
  }
#pragma unroll
  for (int turn = 0; turn < C::kRound; ++turn) {
    if (lane < kPerWarp) shared.tokens[team][turn][first_row + lane] = tokens[turn];
    refine::gather_keys<kPerWarp>(step, keys[turn], tokens[turn], shared.keys[team][turn],
                                  shared.scales[team][turn], first_row);
  }
  gpu::copy_async_commit();
  return broken;
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
    refine::finish_products(products);
    float weights[T::kWeights];
    refine::read_class_weights(shared.weights[column_tile] + c * refine::kClassStride, weights);
    float scores[T::kQueries][2];
    T::Chain::scores(products, weights, scales, scores);
    const int query = column_tile * T::kQueries + Share::query(c);
    if (query >= params.step.next_n || !Share::owns(c)) continue;
    uint32_t* const codes =
        params.results.codes + (static_cast<int64_t>(b) * params.step.next_n + query) * capacity;
#pragma unroll
    for (int i = 0; i < Share::kValues; ++i) {
      const int row = lane_row + 8 * Share::half(c, i);
      const int at = tile * kTokenTile + row;
      if (at >= count) continue;
      const int token = shared.tokens[team][turn][row];
      const bool visible = token >= 0 && token < shared.lengths[query];
      codes[at] = visible ? numeric::order_code(Share::pick(scores, c, i)) : 0;
    }
  }
}

/// Scores all tokens of a source; the whole cluster calls this.
/// Returns whether they were distinct, which all of its threads agree on.
template <class C>
__device__ bool score_tokens(const WitnessParams& params, SharedStorage<C>& shared,
                             const uint8_t* columns, int b, const TokenSource& source) {
  const int tiles = (source.count + kTokenTile - 1) / kTokenTile;
  bool broken = false;
  for (int round = 0; round * C::kRound * C::kTeams * params.ctas < tiles; ++round) {
    broken = gather_round<C>(params, shared, b, round, source) || broken;
    gpu::copy_async_wait<0>();
    gpu::fence_proxy_async();
    __syncthreads();
    for (int turn = 0; turn < C::kRound; ++turn) {
      const int tile = tile_of<C>(params.ctas, round, turn);
      if (tile < tiles) score_tile<C>(params, shared, columns, b, turn, tile, source.count);
    }
    broken = __syncthreads_or(broken ? 1 : 0) != 0;
  }
  uint32_t* const flags = params.results.broken + static_cast<int64_t>(b) * kWitnessCtas;
  if (threadIdx.x == 0) flags[gpu::cluster_rank()] = broken ? 1 : 0;
  gpu::cluster_sync();
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t flag = lane < params.ctas ? __ldcg(flags + lane) : 0;
  return !__any_sync(0xffffffffu, flag != 0);
}

/// A code that at least K of the `count` codes reach, as high as 2,048 even bins tell, and the bins
/// between its score and the best.
template <class C>
__device__ numeric::RowFloor find_floor(SharedStorage<C>& shared, const uint32_t* codes, int count,
                                        int topk) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t own[C::kPerThread];
#pragma unroll
  for (int i = 0; i < C::kPerThread; ++i) {
    const int at = i * C::kThreads + thread;
    own[i] = at < count ? __ldcg(codes + at) : 0;
  }
  for (int i = thread; i < kBins; i += C::kThreads) shared.radix.histogram[i] = 0;
  if (thread == 0) {
    shared.least = ~0u;
    shared.greatest = 0;
    shared.valid = 0;
  }
  __syncthreads();
  uint32_t least = ~0u;
  uint32_t greatest = 0;
  uint32_t valid = 0;
#pragma unroll
  for (int i = 0; i < C::kPerThread; ++i) {
    least = own[i] != 0 ? min(least, own[i]) : least;
    greatest = max(greatest, own[i]);
    valid += own[i] != 0 ? 1 : 0;
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
  if (shared.valid < static_cast<uint32_t>(topk)) return {0, 0.0f};
  const float low = numeric::score_of_code(shared.least);
  const float high = numeric::score_of_code(shared.greatest);
  const numeric::ScoreBins bins{low, __fdiv_rn(kBins - 1, __fsub_rn(high, low))};
#pragma unroll
  for (int i = 0; i < C::kPerThread; ++i) {
    if (own[i] == 0) continue;
    const int bin = numeric::bin_of(bins, numeric::score_of_code(own[i]), kBins - 1);
    atomicAdd(&shared.radix.histogram[bin], 1u);
  }
  __syncthreads();
  find_bin<C::kThreads>(shared.radix, static_cast<uint32_t>(topk));
  const float edge = numeric::bin_edge(bins, static_cast<int>(shared.radix.bin));
  return {numeric::order_code(edge), __fdiv_rn(numeric::kFloorBins - 1, __fsub_rn(high, edge))};
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
  if (params.results.bins != nullptr) {
    uint32_t* const bins = params.results.bins + first_row * numeric::kFloorBins;
    for (int i = rank * C::kThreads + thread; i < step.next_n * numeric::kFloorBins;
         i += params.ctas * C::kThreads) {
      bins[i] = 0;
    }
  }
  if (!worth_witnesses(length, step.topk)) {
    if (rank == 0 && thread < step.next_n) floors[thread] = {0, 0.0f};
    return;
  }
  refine::load_columns<typename C::T>(step, b, columns, shared.weights[0], thread, C::kThreads);
  if (thread < step.next_n) shared.lengths[thread] = numeric::row_length(step, b, thread);
  TokenSource source = pick_source(params, b, length);
  if (!score_tokens<C>(params, shared, columns, b, source)) {
    gpu::cluster_sync();  // all have read the flags
    source = {nullptr, witness_capacity(step.topk), length};
    score_tokens<C>(params, shared, columns, b, source);
  }
  for (int t = rank; t < step.next_n; t += params.ctas) {
    const uint32_t* const codes =
        params.results.codes + (first_row + t) * witness_capacity(step.topk);
    const numeric::RowFloor floor = find_floor<C>(shared, codes, source.count, step.topk);
    if (thread == 0) floors[t] = floor;
    __syncthreads();
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
  // First all work before this call is done, then the scan may start: it reads lengths at once.
  gpu::grid_dependency_wait();
  gpu::grid_launch_dependents();
  const int clusters = static_cast<int>(gridDim.x) / params.ctas;
  for (int b = static_cast<int>(blockIdx.x) / params.ctas; b < params.step.batch; b += clusters) {
    visit_request<C>(params, shared, shared_bytes, b);
  }
}

template <class T>
cudaError_t launch_tile(WitnessParams params, int multiprocessors, cudaStream_t stream) {
  using C = Config<T>;
  params.ctas = kWitnessCtas;
  while (params.ctas > 1 && params.step.batch * params.ctas > multiprocessors) params.ctas /= 2;
  const int bytes = refine::column_tiles<T>(params.step.next_n) * T::kBytes +
                    static_cast<int>(sizeof(SharedStorage<C>));
  const auto kernel = paged_witness_sm90_e4m3_kernel<C>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  const int most = multiprocessors / params.ctas;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(params.ctas * (params.step.batch < most ? params.step.batch : most));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(params.ctas), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
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
