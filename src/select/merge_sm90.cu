// SPDX-License-Identifier: Apache-2.0
// One CTA per row streams the entries of all lists through a buffer in shared memory: what is below
// the K-th best so far is left out, and the buffer is reduced to the K best when it is full.
#include "select/merge_sm90.cuh"

#include <algorithm>

#include "numeric/order_sm90.cuh"
#include "select/id_sort_sm90.cuh"
#include "select/radix_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::select {
namespace {

struct Config {
  static constexpr int kThreads = 512;
  static constexpr int kCtas = 2;   // of an SM: shared memory has room for them with K = 2048
  static constexpr int kLoads = 2;  // entries of a thread in a step
  static constexpr int kStep = kThreads * kLoads;   // entries of a step
  static constexpr int kDistinctRoom = 8192;        // a power of two, for sorting by id
  static constexpr int kLeastRoom = kDistinctRoom;  // also what writing a row needs
  static constexpr int kMostRoom = 10752;           // with K = 2048 two CTAs fit one SM
  static_assert(kLeastRoom >= kMaxTopk + kStep, "a step always fits behind K kept entries");
  static_assert(kLeastRoom * 2 >= kIdBins + 2 * kMaxTopk, "bins and winners fit the buffer");
};

extern __shared__ __align__(16) uint8_t dynamic_shared[];

struct Shared {
  RadixShared radix;
  int64_t begin[kMaxMergedLists];  // of the row's part of a list
  uint32_t end[kMaxMergedLists];   // its entries, up to the first negative id that was seen
  uint32_t taken[kMaxTopk / 32];   // places of the answer, a bit each
  uint32_t longest;
  uint32_t filled;
  int32_t greatest_id;
  uint32_t distinct;
};

/// What a CTA knows of the row at hand.
struct Row {
  Shared& shared;
  uint64_t* buffer;  // (room)
  uint64_t* kept;    // (K)
  int room;
  uint64_t floor;  // the K-th best entry so far; 0 while there are fewer
};

__device__ void find_lists(const MergeParams& params, int64_t index, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) shared.longest = 0;
  __syncthreads();
  for (int list = thread; list < params.lists; list += Config::kThreads) {
    int64_t begin = list * params.list_stride + index * params.row_stride;
    int64_t count = params.width;
    if (params.offsets != nullptr) {
      const int64_t* const offset = params.offsets + list * (params.rows + 1) + index;
      begin = offset[0];
      count = min(max(offset[1] - begin, int64_t{0}), int64_t{INT32_MAX});
    }
    shared.begin[list] = begin;
    shared.end[list] = static_cast<uint32_t>(count);
    atomicMax(&shared.longest, static_cast<uint32_t>(count));
  }
  __syncthreads();
}

/// Where a step is: `group` threads read each of the lists [first, ...), from entry `place` on.
struct Cursor {
  int first = 0;
  uint32_t place = 0;
};

/// What a thread has read for a step.
struct Entries {
  float scores[Config::kLoads];
  int32_t ids[Config::kLoads];
};

/// A thread's i-th entry of a step.
__device__ __forceinline__ uint32_t entry_of(Cursor at, int group, int i) {
  return at.place + static_cast<uint32_t>(static_cast<int>(threadIdx.x) % group + i * group);
}

__device__ void load_step(const MergeParams& params, const Row& row, Cursor at, int group,
                          Entries& loaded) {
  const int list = at.first + static_cast<int>(threadIdx.x) / group;
#pragma unroll
  for (int i = 0; i < Config::kLoads; ++i) {
    const uint32_t entry = entry_of(at, group, i);
    loaded.ids[i] = -1;
    loaded.scores[i] = 0;
    if (list < params.lists && entry < row.shared.end[list]) {
      loaded.ids[i] = params.ids[row.shared.begin[list] + entry];
      loaded.scores[i] = params.scores[row.shared.begin[list] + entry];
    }
  }
}

/// Appends the entries of a step that may be among the K best.
__device__ void add_step(const MergeParams& params, Row& row, Cursor at, int group,
                         const Entries& loaded) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int list = at.first + static_cast<int>(threadIdx.x) / group;
  __syncthreads();  // everybody has looked at the ends
#pragma unroll
  for (int i = 0; i < Config::kLoads; ++i) {
    if (list < params.lists && loaded.ids[i] < 0) {
      atomicMin(&row.shared.end[list], entry_of(at, group, i));
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Config::kLoads; ++i) {
    const bool valid = list < params.lists && entry_of(at, group, i) < row.shared.end[list];
    const uint64_t record = numeric::make_record(loaded.scores[i], loaded.ids[i]);
    const bool keep = valid && record > row.floor;
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    uint32_t base = 0;
    if (lane == 0 && votes != 0) base = atomicAdd(&row.shared.filled, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) row.buffer[base + __popc(votes & ((1u << lane) - 1))] = record;
  }
  __syncthreads();
}

/// Of the entries of a key in buffer [0, count) the best stays, the others become 0, which ranks
/// below all. Returns how many keys there are. count <= kDistinctRoom.
__device__ int remove_repeats(Row& row, int count) {
  const int thread = static_cast<int>(threadIdx.x);
  int size = 32;
  while (size < count) size *= 2;
  if (thread == 0) row.shared.distinct = 0;
  __syncthreads();
  for (int i = thread; i < size; i += Config::kThreads) {
    const uint64_t record = i < count ? row.buffer[i] : 0;
    // By id, the best score of an id first; what is no entry comes last.
    const uint64_t id = static_cast<uint32_t>(numeric::record_key(record));
    row.buffer[i] = record == 0 ? ~uint64_t{0} : id << 32 | static_cast<uint32_t>(~(record >> 32));
  }
  sort_ascending<Config::kThreads>(row.buffer, size);
  uint64_t found[Config::kDistinctRoom / Config::kThreads];
  uint32_t own = 0;
#pragma unroll
  for (int n = 0; n < Config::kDistinctRoom / Config::kThreads; ++n) {
    const int i = thread + n * Config::kThreads;
    found[n] = 0;
    if (i >= count) continue;
    const uint64_t key = row.buffer[i];
    const bool entry = key != ~uint64_t{0};
    const bool first = i == 0 || row.buffer[i - 1] >> 32 != key >> 32;
    if (!entry || !first) continue;
    found[n] = static_cast<uint64_t>(~static_cast<uint32_t>(key)) << 32 |
               static_cast<uint32_t>(~(key >> 32));
    ++own;
  }
  own = __reduce_add_sync(0xffffffffu, own);
  if ((thread & 31) == 0 && own != 0) atomicAdd(&row.shared.distinct, own);
  __syncthreads();
#pragma unroll
  for (int n = 0; n < Config::kDistinctRoom / Config::kThreads; ++n) {
    const int i = thread + n * Config::kThreads;
    if (i < count) row.buffer[i] = found[n];
  }
  __syncthreads();
  return static_cast<int>(row.shared.distinct);
}

/// Copies the entries of buffer [0, count) that reach `bound` to `kept`, at most `most` of them;
/// the least of them is the new floor where there are K. Returns how many reach it.
__device__ int keep_reaching(Row& row, int count, uint64_t bound, int most, int topk) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  RadixShared& radix = row.shared.radix;
  if (threadIdx.x == 0) {
    radix.cursor = 0;
    radix.least = ~0ull;
  }
  __syncthreads();
  uint64_t least = ~uint64_t{0};
  for (int start = 0; start < count; start += Config::kThreads) {
    const int i = start + static_cast<int>(threadIdx.x);
    const uint64_t record = i < count ? row.buffer[i] : 0;
    const bool keep = record >= bound;
    const uint32_t votes = __ballot_sync(0xffffffffu, keep);
    uint32_t base = 0;
    if (lane == 0 && votes != 0) base = atomicAdd(&radix.cursor, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    const int place = static_cast<int>(base) + __popc(votes & ((1u << lane) - 1));
    if (!keep || place >= most) continue;
    row.kept[place] = record;
    least = record < least ? record : least;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, least, step);
    least = other < least ? other : least;
  }
  if (lane == 0) atomicMin(&radix.least, static_cast<unsigned long long>(least));
  __syncthreads();
  if (most == topk) row.floor = radix.least;
  const int reached = static_cast<int>(radix.cursor);
  __syncthreads();
  return reached;
}

/// Copies the K best entries of the buffer to `kept`, and their number to `count`. False where
/// entries that are alike do not let K of them be told from the others.
__device__ bool keep_best(Row& row, int topk, bool distinct, int& count) {
  count = static_cast<int>(row.shared.filled);
  __syncthreads();
  int rank = min(count, topk);
  if (distinct) rank = min(remove_repeats(row, count), topk);
  if (rank > 0) {
    // An entry is never 0, so where all of them are wanted what was made 0 stays out.
    const uint64_t reached =
        rank < count ? rank_bound<Config::kThreads>(row.shared.radix, row.buffer, count, rank) : 1;
    const uint64_t bound = reached > 0 ? reached : 1;
    if (keep_reaching(row, count, bound, rank, topk) != rank) return false;
  }
  count = rank;
  __syncthreads();
  return true;
}

/// Brings the K best entries of a row, or with `distinct` the best entries of its K best keys, to
/// `kept`. Returns how many; -1 where entries are alike.
__device__ int stream_row(const MergeParams& params, Row& row, int64_t index, bool distinct) {
  find_lists(params, index, row.shared);
  if (threadIdx.x == 0) row.shared.filled = 0;
  row.floor = 0;
  __syncthreads();
  const uint32_t longest = row.shared.longest;
  int group = 32;
  while (group < Config::kThreads && static_cast<uint32_t>(group) < longest) group *= 2;
  const int together = Config::kThreads / group;
  const int room = distinct ? Config::kDistinctRoom : row.room;
  int count = 0;
  Cursor next;
  Entries ahead;  // the next step's, on their way while one is done
  load_step(params, row, next, group, ahead);
  while (longest > 0 && next.first < params.lists) {
    const Cursor at = next;
    const Entries loaded = ahead;
    next.place += static_cast<uint32_t>(group * Config::kLoads);
    if (next.place >= longest) next = {at.first + together, 0};
    load_step(params, row, next, group, ahead);
    if (static_cast<int>(row.shared.filled) > room - Config::kStep) {
      __syncthreads();
      if (!keep_best(row, params.topk, distinct, count)) return -1;
      for (int i = static_cast<int>(threadIdx.x); i < count; i += Config::kThreads) {
        row.buffer[i] = row.kept[i];
      }
      if (threadIdx.x == 0) row.shared.filled = static_cast<uint32_t>(count);
      __syncthreads();
    }
    add_step(params, row, at, group, loaded);
  }
  return keep_best(row, params.topk, distinct, count) ? count : -1;
}

__device__ void write_entry(const MergeParams& params, int64_t index, int place, uint64_t record) {
  params.indices[index * params.indices_stride + place] = numeric::record_key(record);
  if (params.out_scores == nullptr) return;
  params.out_scores[index * params.scores_stride + place] = numeric::record_score(record);
}

/// Writes the kept entries in order of their ids. False where a key is there twice.
__device__ bool write_by_id(const MergeParams& params, Row& row, int64_t index, int count) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) row.shared.greatest_id = 0;
  for (int i = thread; i < kMaxTopk / 32; i += Config::kThreads) row.shared.taken[i] = 0;
  __syncthreads();
  int greatest = 0;
  for (int i = thread; i < count; i += Config::kThreads) {
    greatest = max(greatest, numeric::record_key(row.kept[i]));
  }
  greatest = __reduce_max_sync(0xffffffffu, greatest);
  if ((thread & 31) == 0) atomicMax(&row.shared.greatest_id, greatest);
  __syncthreads();
  bool twice = false;
  uint32_t* const bins = reinterpret_cast<uint32_t*>(row.buffer);
  visit_by_id<Config::kThreads>(
      row.shared.radix.warp_sums, bins, row.kept, count, row.shared.greatest_id,
      row.buffer + kIdBins / 2, [&](int place, uint64_t record) {
        const uint32_t bit = 1u << (place & 31);
        twice |= (atomicOr(&row.shared.taken[place / 32], bit) & bit) != 0;
        if (!params.by_score) write_entry(params, index, place, record);
      });
  return __syncthreads_or(twice ? 1 : 0) == 0;
}

/// Writes the kept entries by descending score.
__device__ void write_by_score(const MergeParams& params, Row& row, int64_t index, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += Config::kThreads) {
    row.buffer[i] = i < count ? ~row.kept[i] : ~uint64_t{0};
  }
  sort_ascending<Config::kThreads>(row.buffer, size);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Config::kThreads) {
    write_entry(params, index, i, ~row.buffer[i]);
  }
}

__device__ void write_rest(const MergeParams& params, int64_t index, int count) {
  for (int i = count + static_cast<int>(threadIdx.x); i < params.topk; i += Config::kThreads) {
    params.indices[index * params.indices_stride + i] = -1;
    if (params.out_scores == nullptr) continue;
    params.out_scores[index * params.scores_stride + i] = __int_as_float(0x7fffffff);
  }
}

/// Repeats are rare, so a row is first answered as if each entry were a key of its own. If the K
/// best are K different keys, they are the answer: every key's best entry is among the entries, and
/// what was left out ranks below. Else the row is streamed again, and reductions remove repeats.
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    merge_sm90_kernel(const __grid_constant__ MergeParams params) {
  __shared__ Shared shared;
  uint64_t* const buffer = reinterpret_cast<uint64_t*>(dynamic_shared);
  Row row{shared, buffer, buffer + params.room, params.room, 0};
  for (int64_t index = blockIdx.x; index < params.rows; index += gridDim.x) {
    int count = stream_row(params, row, index, false);
    if (count < 0 || !write_by_id(params, row, index, count)) {
      count = stream_row(params, row, index, true);
      write_by_id(params, row, index, count);
    }
    if (params.by_score) write_by_score(params, row, index, count);
    write_rest(params, index, count);
    __syncthreads();
  }
}

/// Entries, the K winners among them, that shared memory can hold.
cudaError_t most_entries(int& entries) {
  constexpr int kOwn = sizeof(Shared) + 1024;  // static, and what the system keeps of a CTA
  int device = 0;
  int bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  entries = (bytes - kOwn) / static_cast<int>(sizeof(uint64_t));
  return status;
}

}  // namespace

cudaError_t most_merged_topk(int& topk) {
  int entries = 0;
  const cudaError_t status = most_entries(entries);
  topk = std::min(entries - Config::kLeastRoom, kMaxTopk);
  return status;
}

cudaError_t launch_merge_sm90(const MergeParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  MergeParams call = params;
  int entries = 0;
  cudaError_t status = most_entries(entries);
  if (status != cudaSuccess) return status;
  call.room = std::min(call.room == 0 ? Config::kMostRoom : call.room, entries - call.topk);
  if (call.room < Config::kLeastRoom) return cudaErrorInvalidValue;
  const int bytes = (call.room + call.topk) * static_cast<int>(sizeof(uint64_t));
  status =
      cudaFuncSetAttribute(merge_sm90_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  constexpr int64_t kMostBlocks = 1 << 20;
  const auto blocks = static_cast<unsigned>(std::min(call.rows, kMostBlocks));
  merge_sm90_kernel<<<blocks, Config::kThreads, bytes, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace dosa::select
