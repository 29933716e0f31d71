// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_run.cuh"

#include <algorithm>

#include "engine/cuda_layout.cuh"
#include "engine/cuda_options.cuh"
#include "engine/cuda_products.hpp"
#include "engine/cuda_report.cuh"
#include "engine/cuda_schedule.hpp"
#include "gpu/check.hpp"
#include "gpu/tensor_map.hpp"
#include "plan/plan_sm90.cuh"
#include "plan/prepare_sm90.cuh"
#include "refine/dense_sm90.cuh"
#include "refine/refine_sm90.cuh"
#include "screen/choice_sm90.cuh"
#include "screen/screen_sm90.cuh"
#include "select/optimistic_sm90.cuh"
#include "select/recover_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::engine {
namespace {

constexpr int kTileColumns = 128;

int count_multiprocessors() {
  int device = 0;
  int count = 0;
  DOSA_CUDA(cudaGetDevice(&device));
  DOSA_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

CUtensorMap row_map(const gpu::CodeRows& rows, int box_rows) {
  return gpu::make_row_map(rows.codes, rows.rows, rows.stride, box_rows, rows.width);
}

/// One call: its shape, its buffers, and the launches of one chunk of rows after another.
class Run {
 public:
  Run(const dosa_problem& problem, const dosa_options& options, const CudaShape& shape,
      void* workspace, cudaStream_t stream, PhaseHook hook)
      : problem_(problem),
        options_(options),
        shape_(shape),
        stream_(stream),
        hook_(hook),
        multiprocessors_(count_multiprocessors()),
        products_(cuda_products(options.score_model)) {
    place_cuda_buffers(shape_, workspace, buffers_);
    key_rows_ = {problem_.k, shape_.num_keys, problem_.k_stride, shape_.head_dim};
    if (shape_.units > 0 && products_.tensor_maps) keys_map_ = row_map(key_rows_, gpu::kUnitKeys);
  }

  void mark(const char* phase) const {
    if (hook_.mark != nullptr) hook_.mark(hook_.user, phase);
  }

  void prepare_keys() {
    mark("prepare");
    DOSA_CUDA(cudaMemsetAsync(buffers_.totals, 0, sizeof *buffers_.totals, stream_));
    DOSA_CUDA(plan::launch_key_meta_sm90(problem_.k, problem_.k_stride, shape_.head_dim,
                                         problem_.k_scale, shape_.num_keys, shape_.units,
                                         buffers_.key_meta, stream_));
  }

  void topk_chunk(const dosa_output& output, int64_t first, int rows) {
    begin_chunk(first, rows, shape_.path == CudaPath::kBase);
    begin_report(output, first);
    const select::OutputForm form = output_form(problem_, options_, output, first, stats_);
    if (shape_.path == CudaPath::kBase) {
      mark("dense");
      dense_round(refine::Sink::kStore, gpu::Kind::kEvery, {0, shape_.units});
      report_.round(round(gpu::Kind::kEvery, {0, shape_.units}), 0, nullptr);
      mark("select");
      DOSA_CUDA(select::launch_select_scores_sm90(
          buffers_.rows, buffers_.scores, shape_.score_stride, shape_.num_keys, form, stream_));
      report_.end();
      return;
    }
    if (shape_.path == CudaPath::kFull) {
      dense_rounds(shape_.units);
      if (estimates()) prove();
    } else {
      dense_rounds(std::min(shape_.units, shape_.dense_units));
      screened_rounds();
    }
    mark("recover");
    report_.lost();
    recover();
    mark("select");
    DOSA_CUDA(select::launch_finish_sm90(buffers_.rows, form, stream_));
    report_.end();
  }

  void score_chunk(int64_t first, int rows, float* scores, int64_t stride) {
    begin_chunk(first, rows, true);
    buffers_.scores = scores;
    shape_.score_stride = stride;
    dense_round(refine::Sink::kStore, gpu::Kind::kEvery, {0, shape_.units});
  }

  void bound_chunk(int64_t first, int rows, KeyBound* bounds, int64_t stride) {
    static_assert(sizeof(KeyBound) == sizeof(float2), "what the kernel writes");
    if (shape_.units == 0) return;
    begin_chunk(first, rows, false);
    dense_rounds(std::min(shape_.units, shape_.dense_units));
    const int width = shape_.widths[shape_.num_widths - 1];
    sample();
    make_plan(width, nullptr);
    screen::ScreenParams params = screen_params(width, gpu::Kind::kEvery, {0, shape_.units});
    params.bounds = reinterpret_cast<float2*>(bounds);
    params.bounds_stride = stride;
    params.num_keys = shape_.num_keys;
    DOSA_CUDA(products_.bounds(params, width, multiprocessors_, stream_));
  }

 private:
  void begin_chunk(int64_t first, int rows, bool in_order) {
    const bool bounded = !in_order || shape_.path == CudaPath::kBase;
    mark("prepare");
    blocks_ = (rows + gpu::kBlockRows - 1) / gpu::kBlockRows;
    planned_ = false;
    chosen_ = nullptr;
    buffers_.rows.rows = rows;
    weights_ = problem_.weights + first * problem_.weights_stride;
    queries_ = problem_.q + first * problem_.q_stride;
    const int64_t row_bytes = static_cast<int64_t>(shape_.padded_heads) * 128;
    if (shape_.pack_queries) {
      DOSA_CUDA(plan::launch_pack_heads_sm90(queries_, problem_.q_stride, shape_.head_dim,
                                             shape_.heads, shape_.padded_heads, rows,
                                             buffers_.packed_queries, stream_));
      queries_ = buffers_.packed_queries;
    }
    query_rows_ = {queries_, rows * row_bytes / 128, 128, 128};
    if (products_.tensor_maps) queries_map_ = row_map(query_rows_, kTileColumns);
    plan::RowSetup setup{};
    setup.k_start = bounded && problem_.k_start != nullptr ? problem_.k_start + first : nullptr;
    setup.k_end = bounded && problem_.k_end != nullptr ? problem_.k_end + first : nullptr;
    setup.num_keys = shape_.num_keys;
    setup.blocks = blocks_;
    setup.topk = shape_.topk;
    setup.forced_first = bounded ? options_.forced_first : 0;
    setup.forced_last = bounded ? options_.forced_last : 0;
    setup.in_order = in_order;
    setup.scout_stride = scouts() ? screen::kScoutStride : 1;
    DOSA_CUDA(plan::launch_row_setup_sm90(setup, buffers_.rows, buffers_.orders, stream_));
  }

  /// Statistics are kept in the caller's memory, or in the workspace where only sums are wanted.
  void begin_report(const dosa_output& output, int64_t first) {
    stats_ = nullptr;
    if (output.stats != nullptr) stats_ = buffers_.row_stats;
    if (output.rows != nullptr) stats_ = output.rows + first;
    select::ReportParams params{};
    params.rows = buffers_.rows;
    params.stats = stats_;
    params.traces = buffers_.row_traces;
    params.lists = buffers_.lists;
    params.heads = shape_.heads;
    params.topk = shape_.topk;
    report_ = CudaReport(params, output.stats, stream_);
  }

  [[nodiscard]] gpu::Round round(gpu::Kind kind, UnitRange range) const {
    return {buffers_.orders, blocks_, 0, range.begin, range.end, kind};
  }

  void dense_round(refine::Sink sink, gpu::Kind kind, UnitRange range) {
    if (shape_.units == 0) return;
    refine::DenseParams params{};
    params.keys = keys_map_;
    params.columns = queries_map_;
    params.key_rows = key_rows_;
    params.column_rows = query_rows_;
    params.key_meta = buffers_.key_meta;
    params.round = round(kind, range);
    params.rows = buffers_.rows;
    params.weights = weights_;
    params.weights_stride = problem_.weights_stride;
    params.heads = shape_.heads;
    params.num_keys = shape_.num_keys;
    params.scores = buffers_.scores;
    params.scores_stride = shape_.score_stride;
    params.hard_floor = buffers_.hard_floor;
    params.active = buffers_.active;
    DOSA_CUDA(products_.dense(params, shape_.padded_heads, sink, multiprocessors_, stream_));
  }

  /// visited: places scored so far of which the records are a fair sample; 0: no estimates.
  void reduce(int slack, float* hard_floor, int visited = 0) {
    select::ReduceParams params{};
    params.rows = buffers_.rows;
    params.topk = shape_.topk;
    params.slack = slack;
    params.hard_floor = hard_floor;
    params.all_hard = options_.statistics == DOSA_STATISTICS_RANDOM;
    params.keep_bound = planned_ && options_.threshold == DOSA_THRESHOLD_FIXED;
    if (visited > 0) params.optimism = {buffers_.orders, visited};
    DOSA_CUDA(select::launch_reduce_sm90(params, stream_));
    report_.reduced();
  }

  [[nodiscard]] bool estimates() const {
    return options_.threshold == DOSA_THRESHOLD_RISING &&
           (shape_.path == CudaPath::kScreen || shape_.units >= kLeastEstimatedUnits);
  }

  /// Every floor becomes that of the records; rows whose estimates it does not reach are lost.
  void prove() {
    reduce(0, nullptr);
    DOSA_CUDA(select::launch_prove_sm90(buffers_.rows, stream_));
  }

  void dense_rounds(int most) {
    for (UnitRange range = next_dense_round(0, most); range.begin < range.end;
         range = next_dense_round(range.end, most)) {
      mark("dense");
      dense_round(refine::Sink::kRecord, gpu::Kind::kEvery, range);
      report_.round(round(gpu::Kind::kEvery, range), 0, nullptr);
      mark("reduce");
      const bool first = range.begin == 0 && shape_.path == CudaPath::kScreen;
      const bool raises = estimates() && raises_estimate(range.end);
      reduce(1, first ? buffers_.hard_floor : nullptr, raises ? range.end : 0);
    }
  }

  /// A chunk of few blocks has no room for scouts; one width needs none unless it may be declined.
  [[nodiscard]] bool scouts() const {
    const bool open = shape_.num_widths > 1 || shape_.may_decline;
    return open && shape_.path == CudaPath::kScreen && shape_.units > shape_.dense_units;
  }

  /// How often heads are active on the hard keys of all blocks that are screened.
  void sample() {
    const size_t counts = static_cast<size_t>(blocks_) * gpu::kBlockRows *
                          static_cast<size_t>(shape_.padded_heads + 1) * sizeof(uint32_t);
    DOSA_CUDA(cudaMemsetAsync(buffers_.active, 0, counts, stream_));
    dense_round(refine::Sink::kSample, gpu::Kind::kLate, {0, kSampleUnits});
  }

  /// The certificates for one width, of all blocks that are screened; with `chosen` only if it is
  /// the chosen one.
  void make_plan(int width, const int* chosen) {
    plan::PlanParams params{};
    params.queries = queries_;
    params.query_bytes = static_cast<int64_t>(shape_.padded_heads) * 128;
    params.weights = weights_;
    params.weights_stride = problem_.weights_stride;
    params.heads = shape_.heads;
    params.padded_heads = shape_.padded_heads;
    params.active = buffers_.active;
    params.screen_rows = width;
    params.rules = plan_rules(options_);
    params.rounding = products_.rounding;
    params.rows = buffers_.rows;
    params.orders = buffers_.orders;
    params.chosen = chosen;
    params.operand = buffers_.screen_operand;
    params.coefficients = buffers_.coefficients;
    DOSA_CUDA(plan::launch_plan_sm90(params, blocks_, stream_));
  }

  /// Screens a few blocks with every width and lets the device choose one of them, or none.
  void choose_width() {
    mark("scouts");
    sample();
    const UnitRange range{shape_.dense_units,
                          std::min(shape_.dense_units + kScoutUnits, shape_.units)};
    screen::ChoiceParams params{};
    params.num_widths = shape_.num_widths;
    params.usual = shape_.usual_width;
    params.padded_heads = shape_.padded_heads;
    params.long_context = long_context(shape_.num_keys, shape_.padded_heads);
    params.may_decline = shape_.may_decline;
    params.choice = buffers_.choice;
    std::copy_n(shape_.widths, shape_.num_widths, params.widths);
    for (int i = 0; i < shape_.num_widths; ++i) {
      make_plan(shape_.widths[i], nullptr);
      screen_width(shape_.widths[i], range, nullptr);
      params.index = i;
      params.survivors = survivor_params(range);
      params.survivors.screen_rows = shape_.widths[i];
      params.survivors.chosen = nullptr;
      DOSA_CUDA(screen::launch_choice_sm90(params, stream_));
    }
  }

  /// Certificates of all rows that are screened, and the width if there is a choice.
  void prepare_screening() {
    const int* chosen = nullptr;
    if (scouts()) {
      choose_width();
      chosen = &buffers_.choice->screen_rows;
    }
    mark("plan");
    sample();
    for (int i = 0; i < shape_.num_widths; ++i) make_plan(shape_.widths[i], chosen);
    chosen_ = chosen;
    planned_ = true;
  }

  [[nodiscard]] screen::ScreenParams screen_params(int width, gpu::Kind kind,
                                                   UnitRange range) const {
    screen::ScreenParams params{};
    params.keys = keys_map_;
    params.key_rows = key_rows_;
    params.column_rows = {buffers_.screen_operand,
                          static_cast<int64_t>(blocks_) * gpu::kBlockRows * width, 128, 128};
    if (products_.tensor_maps) {
      params.columns = row_map(params.column_rows, plan::ScreenLayout::tile_columns(width));
    }
    params.key_meta = buffers_.key_meta;
    params.round = round(kind, range);
    params.rows = buffers_.rows;
    params.coefficients = buffers_.coefficients;
    params.masks = buffers_.masks;
    params.mask_units = shape_.mask_units;
    return params;
  }

  void screen_width(int width, UnitRange range, const int* chosen) {
    screen::ScreenParams params = screen_params(width, gpu::Kind::kLate, range);
    params.chosen = chosen;
    params.variant = width;
    DOSA_CUDA(products_.screen(params, width, multiprocessors_, stream_));
  }

  [[nodiscard]] screen::SurvivorParams survivor_params(UnitRange range) const {
    screen::SurvivorParams params{};
    params.round = round(gpu::Kind::kLate, range);
    params.masks = buffers_.masks;
    params.mask_units = shape_.mask_units;
    params.screen_rows = shape_.widths[0];
    params.chosen = chosen_;
    params.num_keys = shape_.num_keys;
    params.orders = buffers_.orders;
    params.lists = buffers_.lists;
    params.retry_from = probe_place(range.end);
    return params;
  }

  void screen_round(UnitRange range) {
    for (int i = 0; i < shape_.num_widths; ++i) screen_width(shape_.widths[i], range, chosen_);
    mark("lists");
    DOSA_CUDA(screen::launch_survivors_sm90(survivor_params(range), stream_));
  }

  void refine_round() {
    refine::RefineParams params{};
    params.queries = queries_map_;
    params.query_rows = query_rows_;
    params.lists = buffers_.lists;
    params.groups = blocks_ * gpu::kBlockRows / buffers_.lists.group_rows;
    params.k = problem_.k;
    params.k_stride = problem_.k_stride;
    params.head_dim = shape_.head_dim;
    params.k_scale = problem_.k_scale;
    params.rows = buffers_.rows;
    params.weights = weights_;
    params.weights_stride = problem_.weights_stride;
    params.heads = shape_.heads;
    DOSA_CUDA(products_.refine(params, shape_.padded_heads, multiprocessors_, stream_));
  }

  void screened_rounds() {
    if (shape_.units <= shape_.dense_units) return;
    prepare_screening();
    for (UnitRange range = next_screened_round(shape_.dense_units, shape_.units);
         range.begin < range.end; range = next_screened_round(range.end, shape_.units)) {
      mark("screen");
      screen_round(range);
      mark("refine");
      refine_round();
      mark("fallback");
      dense_round(refine::Sink::kRecord, gpu::Kind::kEarly, range);
      report_.round(round(gpu::Kind::kEvery, range), shape_.widths[0], chosen_);
      mark("reduce");
      const int visited = estimates() && raises_estimate(range.end) ? range.end : 0;
      const bool last = range.end == shape_.units;
      if (!last) reduce(std::max(1, shape_.topk / kReduceShare), nullptr, visited);
    }
    prove();
  }

  void recover() {
    if (shape_.units == 0) return;
    select::RecoverParams params{};
    params.keys = keys_map_;
    params.queries = queries_map_;
    params.key_rows = key_rows_;
    params.query_rows = query_rows_;
    params.k_scale = problem_.k_scale;
    params.num_keys = shape_.num_keys;
    params.rows = buffers_.rows;
    params.weights = weights_;
    params.weights_stride = problem_.weights_stride;
    params.heads = shape_.heads;
    params.topk = shape_.topk;
    params.recovered = &buffers_.totals->recovered;
    params.lost = buffers_.lost_groups;
    DOSA_CUDA(products_.recover(params, shape_.padded_heads, multiprocessors_, stream_));
  }

  const dosa_problem& problem_;
  const dosa_options& options_;
  CudaShape shape_;
  cudaStream_t stream_;
  PhaseHook hook_;
  int multiprocessors_;
  CudaBuffers buffers_{};
  CUtensorMap keys_map_{};
  CUtensorMap queries_map_{};
  CudaProducts products_;
  gpu::CodeRows key_rows_{};
  gpu::CodeRows query_rows_{};
  const uint8_t* queries_ = nullptr;
  const float* weights_ = nullptr;
  int blocks_ = 0;
  CudaReport report_;
  dosa_row_stats* stats_ = nullptr;  // of the chunk; null: not asked for
  bool planned_ = false;             // the chunk's certificates are made
  const int* chosen_ = nullptr;      // the chunk's width in device memory; null: the only one
};

}  // namespace

void cuda_topk(const dosa_problem& problem, const dosa_options& options, const dosa_output& output,
               void* workspace, cudaStream_t stream, PhaseHook hook) {
  const CudaShape shape = make_cuda_shape(problem, options);
  Run run(problem, options, shape, workspace, stream, hook);
  run.prepare_keys();
  if (output.stats != nullptr) {
    DOSA_CUDA(select::launch_report_sums_sm90(output.stats, false, stream));
  }
  for (int64_t first = 0; first < shape.num_queries; first += shape.chunk_rows) {
    const int64_t left = shape.num_queries - first;
    run.topk_chunk(output, first, static_cast<int>(std::min<int64_t>(left, shape.chunk_rows)));
  }
  if (output.stats != nullptr) {
    DOSA_CUDA(select::launch_report_sums_sm90(output.stats, true, stream));
  }
  run.mark("end");
}

int cuda_screen_rows(const dosa_problem& problem, const dosa_options& options) {
  const CudaShape shape = make_cuda_shape(problem, options);
  if (shape.path != CudaPath::kScreen) return 0;
  return shape.num_widths == 1 ? shape.widths[0] : kChosenOnDevice;
}

void cuda_scores(const dosa_problem& problem, const dosa_options& options, int64_t row_begin,
                 int64_t row_end, float* scores, int64_t scores_stride, void* workspace,
                 cudaStream_t stream) {
  dosa_options full = options;
  full.mode = DOSA_MODE_FULL;
  const CudaShape shape = make_cuda_shape(problem, full);
  Run run(problem, full, shape, workspace, stream, {});
  run.prepare_keys();
  for (int64_t first = row_begin; first < row_end; first += shape.chunk_rows) {
    const int64_t left = row_end - first;
    run.score_chunk(first, static_cast<int>(std::min<int64_t>(left, shape.chunk_rows)),
                    scores + (first - row_begin) * scores_stride, scores_stride);
  }
}

void cuda_bounds(const dosa_problem& problem, const dosa_options& options, int64_t row_begin,
                 int64_t row_end, KeyBound* bounds, int64_t bounds_stride, void* workspace,
                 cudaStream_t stream) {
  dosa_options screened = options;
  screened.mode = DOSA_MODE_DOSA;
  CudaShape shape = make_cuda_shape(problem, screened);
  shape.widths[0] = shape.widths[shape.num_widths - 1];  // nothing is chosen here
  shape.num_widths = 1;
  Run run(problem, screened, shape, workspace, stream, {});
  run.prepare_keys();
  for (int64_t first = row_begin; first < row_end; first += shape.chunk_rows) {
    const int64_t left = row_end - first;
    run.bound_chunk(first, static_cast<int>(std::min<int64_t>(left, shape.chunk_rows)),
                    bounds + (first - row_begin) * bounds_stride, bounds_stride);
  }
}

}  // namespace dosa::engine
