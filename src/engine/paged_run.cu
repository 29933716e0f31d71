// SPDX-License-Identifier: Apache-2.0
#include "engine/paged_run.cuh"

#include <algorithm>
#include <bit>
#include <limits>

#include "gpu/check.hpp"
#include "gpu/tensor_map.hpp"
#include "select/paged_select_sm90.cuh"

namespace dosa::engine {
namespace {

constexpr size_t kAlignment = 256;
// With more rows each is short, and clearing bins would cost what they save.
constexpr int64_t kMostBinnedRows = 1024;
// Records between two reductions of a row that has no threshold yet; larger K take as many as K.
constexpr int kLeastGrowth = 2048;

/// Hands out aligned pieces of the workspace, or only counts them.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<uint8_t*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    T* const piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

int count_multiprocessors() {
  int device = 0;
  int count = 0;
  DOSA_CUDA(cudaGetDevice(&device));
  DOSA_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

int pad_heads(int heads) { return heads <= 32 ? 32 : (heads <= 64 ? 64 : 128); }

/// Tokens that a request can have pages for.
int reachable_context(const dosa_paged_problem& problem) {
  if (problem.cache->num_pages == 0) return 0;
  const int64_t room = problem.block_table_blocks * problem.cache->page_size;
  return static_cast<int>(std::min(problem.max_context, room));
}

/// The step of requests [first, first + count).
numeric::PagedStep make_step(const dosa_paged_problem& problem, int64_t first, int64_t count) {
  const dosa_page_cache& cache = *problem.cache;
  const int64_t row = first * problem.next_n;
  numeric::PagedStep step{};
  step.pages = cache.pages;
  step.page_stride = cache.page_stride;
  step.num_pages = static_cast<int>(cache.num_pages);
  step.page_size = cache.page_size;
  step.page_shift = std::countr_zero(static_cast<unsigned>(cache.page_size));
  step.batch = static_cast<int>(count);
  step.next_n = problem.next_n;
  step.heads = problem.num_heads;
  step.topk = problem.topk;
  step.max_context = reachable_context(problem);
  step.per_request = problem.lengths == DOSA_LENGTHS_PER_REQUEST;
  step.lengths = problem.context_lens + first * problem.context_lens_stride;
  step.lengths_stride = problem.context_lens_stride;
  step.table = problem.block_table + first * problem.block_table_stride;
  step.table_stride = problem.block_table_stride;
  step.q = problem.q + row * problem.q_stride;
  step.q_stride = problem.q_stride;
  step.weights = problem.weights + row * problem.weights_stride;
  step.weights_stride = problem.weights_stride;
  return step;
}

/// Tensor maps want pages at multiples of 16 bytes, and boxes of scales at multiples of 128.
void map_pages(const dosa_page_cache& cache, select::ScanParams& params) {
  constexpr int kLeastMappedPage = 32;
  constexpr int64_t kMapAlignment = 16;
  const bool aligned = reinterpret_cast<uintptr_t>(cache.pages) % kMapAlignment == 0 &&
                       cache.page_stride % kMapAlignment == 0;
  params.mapped = aligned && cache.page_size >= kLeastMappedPage && cache.num_pages > 0;
  if (!params.mapped) return;
  const gpu::PageMaps maps =
      gpu::make_page_maps(cache.pages, cache.num_pages, cache.page_stride, cache.page_size,
                          std::min(cache.page_size, numeric::kTokenTile));
  params.page_keys = maps.keys;
  params.page_scales = maps.scales;
}

select::OutputForm make_form(const dosa_paged_problem& problem, const dosa_options& options,
                             const dosa_output& output, int64_t first) {
  const int64_t row = first * problem.next_n;
  select::OutputForm form{};
  form.indices = output.indices + row * output.indices_stride;
  form.indices_stride = output.indices_stride;
  if (output.scores != nullptr) form.scores = output.scores + row * output.scores_stride;
  form.scores_stride = output.scores_stride;
  form.topk = problem.topk;
  form.by_score = options.order == DOSA_ORDER_SCORE;
  if (options.index_form == DOSA_INDEX_OFFSET) form.offset = problem.index_offset + row;
  if (options.index_form != DOSA_INDEX_SLOT) return form;
  const bool own = problem.slot_table == nullptr;
  form.table = own ? problem.block_table + first * problem.block_table_stride
                   : problem.slot_table + first * problem.slot_table_stride;
  form.table_stride = own ? problem.block_table_stride : problem.slot_table_stride;
  form.page_size = own ? problem.cache->page_size : problem.slot_page_size;
  return form;
}

/// Whether scores stay in shared memory. Where they take more than one round, a threshold from
/// witnesses and records above it were faster (docs/kernels-decode.md).
bool is_resident(const dosa_paged_problem& problem, const dosa_options& options,
                 const PagedShape& shape, int multiprocessors) {
  if (!shape.resident) return false;
  const int rounds = select::count_resident_rounds(
      shape.padded_heads, problem.next_n, problem.batch, shape.max_context, multiprocessors);
  return rounds == 1 || (rounds > 1 && options.mode == DOSA_MODE_BASE);
}

}  // namespace

PagedShape make_paged_shape(const dosa_paged_problem& problem, const dosa_options& options) {
  PagedShape shape{};
  shape.padded_heads = pad_heads(problem.num_heads);
  shape.max_context = reachable_context(problem);
  shape.witnesses = select::worth_witnesses(shape.max_context, problem.topk);
  const int wanted = problem.topk + std::max(problem.topk, kLeastGrowth) + select::kScanSlack;
  const int most =
      (shape.max_context + numeric::kTokenTile - 1) / numeric::kTokenTile * numeric::kTokenTile;
  shape.capacity = std::max(std::min(wanted, most), 1);
  shape.reduce_from = wanted < most ? wanted - select::kScanSlack : std::numeric_limits<int>::max();
  shape.chunk = std::max<int64_t>(problem.batch, 1);
  PagedBuffers unused{};
  while (shape.chunk > 1 &&
         place_paged_buffers(problem, shape, nullptr, unused) > options.workspace_limit) {
    shape.chunk = (shape.chunk + 1) / 2;
  }
  shape.resident = options.mode != DOSA_MODE_FULL && options.order == DOSA_ORDER_ID &&
                   shape.chunk >= problem.batch &&
                   shape.chunk * problem.next_n <= select::kMostStepRows;
  if (shape.resident &&
      place_paged_buffers(problem, shape, nullptr, unused) > options.workspace_limit) {
    shape.resident = false;
  }
  return shape;
}

size_t place_paged_buffers(const dosa_paged_problem& problem, const PagedShape& shape, void* base,
                           PagedBuffers& buffers) {
  Carver carver(base);
  const int64_t requests = shape.chunk;
  const int64_t rows = requests * problem.next_n;
  const int64_t segments = requests + select::kMostScanCtas;
  buffers.found.capacity = shape.capacity;
  buffers.found.reduce_from = shape.reduce_from;
  buffers.found.ctas = carver.take<int2>(requests);
  buffers.found.counts = carver.take<uint32_t>(segments * problem.next_n);
  buffers.found.records = carver.take<uint64_t>(segments * problem.next_n * shape.capacity);
  if (shape.resident) {
    buffers.resident.meetings = carver.take<select::RequestMeeting>(requests);
    buffers.resident.samples = carver.take<select::RowSample>(rows);
    buffers.resident.histograms =
        carver.take<uint32_t>(rows * (select::kResidentHistograms * select::kBins));
    buffers.resident.candidates = carver.take<uint64_t>(rows * select::kMostCandidates);
    buffers.resident.counts = carver.take<uint32_t>(rows * select::kMostScanCtas);
  }
  if (!shape.witnesses) return carver.used();
  const int64_t capacity = select::witness_capacity(problem.topk);
  buffers.witnesses.floors = carver.take<numeric::RowFloor>(rows);
  buffers.witnesses.codes = carver.take<uint32_t>(rows * capacity);
  buffers.witnesses.broken = carver.take<uint32_t>(requests * select::kWitnessCtas);
  if (rows <= kMostBinnedRows) {
    buffers.witnesses.bins = carver.take<uint32_t>(rows * numeric::kFloorBins);
  }
  return carver.used();
}

void cuda_paged_topk(const dosa_paged_problem& problem, const dosa_options& options,
                     const dosa_output& output, void* workspace, cudaStream_t stream) {
  const PagedShape shape = make_paged_shape(problem, options);
  PagedBuffers buffers{};
  place_paged_buffers(problem, shape, workspace, buffers);
  const int multiprocessors = count_multiprocessors();
  select::ScanParams scan{};
  map_pages(*problem.cache, scan);
  const bool resident = is_resident(problem, options, shape, multiprocessors);
  scan.found = buffers.found;
  scan.dependent = shape.witnesses;
  if (!resident) {
    if (options.threshold == DOSA_THRESHOLD_FIXED) buffers.witnesses.bins = nullptr;
    scan.floors = buffers.witnesses.floors;
    scan.bins = buffers.witnesses.bins;
  }
  for (int64_t first = 0; first < problem.batch; first += shape.chunk) {
    numeric::PagedStep step =
        make_step(problem, first, std::min(shape.chunk, problem.batch - first));
    step.score_short = output.scores != nullptr || options.order == DOSA_ORDER_SCORE;
    step.forced_first = options.forced_first;
    step.forced_last = options.forced_last;
    const select::WitnessStates states{
        static_cast<uint8_t*>(problem.witnesses), problem.witness_stride, problem.witness_count,
        problem.witness_index != nullptr ? problem.witness_index + first : nullptr, first};
    scan.step = step;
    if (resident) {
      const select::ResidentParams params{
          scan, buffers.resident, make_form(problem, options, output, first), states, 0, 0, 0};
      DOSA_CUDA(
          select::launch_paged_resident_sm90(params, shape.padded_heads, multiprocessors, stream));
      continue;
    }
    if (shape.witnesses) {
      const select::WitnessParams params{step, states, options.mode != DOSA_MODE_BASE,
                                         buffers.witnesses, 0};
      DOSA_CUDA(
          select::launch_paged_witness_sm90(params, shape.padded_heads, multiprocessors, stream));
    }
    DOSA_CUDA(select::launch_paged_scan_sm90(scan, shape.padded_heads, select::ScanSink::kRecord,
                                             multiprocessors, stream));
    const select::PagedSelectParams params{
        step, buffers.found, make_form(problem, options, output, first), states, buffers.witnesses};
    DOSA_CUDA(select::launch_paged_select_sm90(params, stream));
  }
}

void cuda_paged_scores(const dosa_paged_problem& problem, float* scores, int64_t stride,
                       cudaStream_t stream) {
  if (problem.batch == 0) return;
  select::ScanParams scan{};
  map_pages(*problem.cache, scan);
  scan.step = make_step(problem, 0, problem.batch);
  scan.step.score_short = true;
  scan.scores = scores;
  scan.scores_stride = stride;
  DOSA_CUDA(select::launch_paged_scan_sm90(scan, pad_heads(problem.num_heads),
                                           select::ScanSink::kStore, count_multiprocessors(),
                                           stream));
}

}  // namespace dosa::engine
