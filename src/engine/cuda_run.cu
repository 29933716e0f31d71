// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_run.cuh"

#include <algorithm>

#include "engine/cuda_layout.cuh"
#include "engine/cuda_products.hpp"
#include "engine/cuda_schedule.hpp"
#include "gpu/check.hpp"
#include "gpu/tensor_map.hpp"
#include "plan/plan_sm90.cuh"
#include "plan/prepare_sm90.cuh"
#include "refine/dense_sm90.cuh"
#include "refine/refine_sm90.cuh"
#include "screen/screen_sm90.cuh"
#include "screen/seeds_sm90.cuh"
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
    const select::OutputForm form = output_form(output, first);
    if (shape_.path == CudaPath::kBase) {
      mark("dense");
      dense_round(refine::Sink::kStore, gpu::Kind::kEvery, {0, shape_.units});
      mark("select");
      DOSA_CUDA(select::launch_select_scores_sm90(buffers_.rows, buffers_.scores,
                                                  shape_.score_stride, form, stream_));
      return;
    }
    if (shape_.path == CudaPath::kFull) {
      dense_rounds(shape_.units);
    } else {
      dense_rounds(std::min(shape_.units, shape_.dense_units));
      if (shape_.seeded) seed_rows(first);
      screened_rounds();
    }
    mark("recover");
    recover();
    mark("select");
    DOSA_CUDA(select::launch_finish_sm90(buffers_.rows, form, stream_));
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
    make_plan();
    screen::ScreenParams params = screen_params(gpu::Kind::kEvery, {0, shape_.units});
    params.bounds = reinterpret_cast<float2*>(bounds);
    params.bounds_stride = stride;
    params.num_keys = shape_.num_keys;
    DOSA_CUDA(products_.bounds(params, shape_.screen_rows, multiprocessors_, stream_));
  }

 private:
  void begin_chunk(int64_t first, int rows, bool in_order) {
    const bool bounded = !in_order || shape_.path == CudaPath::kBase;
    mark("prepare");
    blocks_ = (rows + gpu::kBlockRows - 1) / gpu::kBlockRows;
    planned_ = false;
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
    setup.split_from = 0;
    DOSA_CUDA(plan::launch_row_setup_sm90(setup, buffers_.rows, buffers_.orders, stream_));
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

  void reduce(int slack, float* hard_floor) {
    select::ReduceParams params{};
    params.rows = buffers_.rows;
    params.topk = shape_.topk;
    params.slack = slack;
    params.hard_floor = hard_floor;
    params.all_hard = options_.statistics == DOSA_STATISTICS_RANDOM;
    params.keep_bound = planned_ && options_.threshold == DOSA_THRESHOLD_FIXED;
    DOSA_CUDA(select::launch_reduce_sm90(params, stream_));
  }

  void dense_rounds(int most) {
    for (UnitRange range = next_dense_round(0, most); range.begin < range.end;
         range = next_dense_round(range.end, most)) {
      mark("dense");
      dense_round(refine::Sink::kRecord, gpu::Kind::kEvery, range);
      mark("reduce");
      const bool first = range.begin == 0 && shape_.path == CudaPath::kScreen;
      reduce(1, first ? buffers_.hard_floor : nullptr);
    }
  }

  [[nodiscard]] plan::PlanRules plan_rules() const {
    plan::PlanRules rules{};
    rules.strength = options_.retain == DOSA_RETAIN_STRENGTH;
    rules.projection = options_.projection != 0;
    rules.triangle = options_.allowance != DOSA_ALLOWANCE_JOINT;
    rules.joint = options_.allowance != DOSA_ALLOWANCE_TRIANGLE;
    rules.support = 0.5f;
    if (options_.aggregate == DOSA_AGGREGATE_ALL) rules.support = 0.0f;
    if (options_.aggregate == DOSA_AGGREGATE_NONE) rules.support = 2.0f;
    return rules;
  }

  void make_plan() {
    const size_t counts = static_cast<size_t>(blocks_) * gpu::kBlockRows *
                          static_cast<size_t>(shape_.padded_heads + 1) * sizeof(uint32_t);
    DOSA_CUDA(cudaMemsetAsync(buffers_.active, 0, counts, stream_));
    dense_round(refine::Sink::kSample, gpu::Kind::kEvery, {0, kSampleUnits});
    plan::PlanParams params{};
    params.queries = queries_;
    params.query_bytes = static_cast<int64_t>(shape_.padded_heads) * 128;
    params.weights = weights_;
    params.weights_stride = problem_.weights_stride;
    params.heads = shape_.heads;
    params.padded_heads = shape_.padded_heads;
    params.active = buffers_.active;
    params.screen_rows = shape_.screen_rows;
    params.rules = plan_rules();
    params.rounding = products_.rounding;
    params.rows = buffers_.rows;
    params.operand = buffers_.screen_operand;
    params.coefficients = buffers_.coefficients;
    DOSA_CUDA(plan::launch_plan_sm90(params, blocks_, stream_));
    planned_ = true;
    operand_rows_ = {buffers_.screen_operand,
                     static_cast<int64_t>(blocks_) * gpu::kBlockRows * shape_.screen_rows, 128,
                     128};
    if (products_.tensor_maps) {
      operand_map_ = row_map(operand_rows_, plan::ScreenLayout::tile_columns(shape_.screen_rows));
    }
  }

  /// Raises the floors by the nearest pilots' winners.
  void seed_rows(int64_t first) {
    mark("seeds");
    screen::SeedParams params{};
    params.pilots = buffers_.pilot_ids;
    params.pilot_rows = shape_.pilot_rows;
    params.topk = shape_.topk;
    params.first_row = first;
    params.blocks = blocks_;
    params.orders = buffers_.orders;
    params.sample_units = shape_.dense_units;
    params.lists = buffers_.lists;
    DOSA_CUDA(screen::launch_seeds_sm90(params, stream_));
    refine_round();
    reduce(1, nullptr);
    DOSA_CUDA(screen::launch_drop_seeds_sm90(buffers_.rows, shape_.topk, buffers_.orders,
                                             shape_.dense_units, stream_));
  }

  [[nodiscard]] screen::ScreenParams screen_params(gpu::Kind kind, UnitRange range) const {
    screen::ScreenParams params{};
    params.keys = keys_map_;
    params.columns = operand_map_;
    params.key_rows = key_rows_;
    params.column_rows = operand_rows_;
    params.key_meta = buffers_.key_meta;
    params.round = round(kind, range);
    params.rows = buffers_.rows;
    params.coefficients = buffers_.coefficients;
    return params;
  }

  void screen_round(UnitRange range) {
    screen::ScreenParams params = screen_params(gpu::Kind::kLate, range);
    params.masks = buffers_.masks;
    params.mask_units = shape_.mask_units;
    DOSA_CUDA(products_.screen(params, shape_.screen_rows, multiprocessors_, stream_));
    mark("lists");
    screen::SurvivorParams survivors{};
    survivors.round = params.round;
    survivors.masks = buffers_.masks;
    survivors.mask_units = shape_.mask_units;
    survivors.screen_rows = shape_.screen_rows;
    survivors.num_keys = shape_.num_keys;
    survivors.orders = buffers_.orders;
    survivors.lists = buffers_.lists;
    survivors.retry_from = probe_place(range.end);
    DOSA_CUDA(screen::launch_survivors_sm90(survivors, stream_));
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
    mark("plan");
    make_plan();
    for (UnitRange range = next_screened_round(shape_.dense_units, shape_.units);
         range.begin < range.end; range = next_screened_round(range.end, shape_.units)) {
      mark("screen");
      screen_round(range);
      mark("refine");
      refine_round();
      mark("fallback");
      dense_round(refine::Sink::kRecord, gpu::Kind::kEarly, range);
      mark("reduce");
      const bool last = range.end == shape_.units;
      if (!last) reduce(std::max(1, shape_.topk / kReduceShare), nullptr);
    }
    reduce(1, nullptr);
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
    DOSA_CUDA(products_.recover(params, shape_.padded_heads, multiprocessors_, stream_));
  }

  [[nodiscard]] select::OutputForm output_form(const dosa_output& output, int64_t first) const {
    select::OutputForm form{};
    form.indices = output.indices + first * output.indices_stride;
    form.indices_stride = output.indices_stride;
    if (output.scores != nullptr) {
      form.scores = output.scores + first * output.scores_stride;
      form.scores_stride = output.scores_stride;
    }
    form.topk = shape_.topk;
    form.relative = options_.index_form != DOSA_INDEX_ABSOLUTE;
    form.by_score = options_.order == DOSA_ORDER_SCORE;
    if (options_.index_form == DOSA_INDEX_OFFSET) form.offset = problem_.index_offset + first;
    if (options_.index_form == DOSA_INDEX_SLOT) {
      form.table = problem_.page_table + first * problem_.page_table_stride;
      form.table_stride = problem_.page_table_stride;
      form.page_size = problem_.page_size;
    }
    return form;
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
  CUtensorMap operand_map_{};
  CudaProducts products_;
  gpu::CodeRows key_rows_{};
  gpu::CodeRows query_rows_{};
  gpu::CodeRows operand_rows_{};
  const uint8_t* queries_ = nullptr;
  const float* weights_ = nullptr;
  int blocks_ = 0;
  bool planned_ = false;  // the chunk's certificates are made
};

/// Finds the winners of the pilot rows in a pass of their own, inside the call's workspace.
void run_pilots(const dosa_problem& problem, const dosa_options& options, const CudaShape& shape,
                void* workspace, cudaStream_t stream) {
  CudaBuffers buffers{};
  place_cuda_buffers(shape, workspace, buffers);
  constexpr int64_t kStride = screen::kPilotStride;
  int32_t* const starts = buffers.pilot_windows;
  int32_t* const ends = buffers.pilot_windows + shape.pilot_rows;
  DOSA_CUDA(screen::launch_pilot_windows_sm90(problem.k_start, problem.k_end, shape.pilot_rows,
                                              starts, ends, stream));
  dosa_problem pilots = problem;
  pilots.num_queries = shape.pilot_rows;
  pilots.q = problem.q + kStride / 2 * problem.q_stride;
  pilots.q_stride = problem.q_stride * kStride;
  pilots.weights = problem.weights + kStride / 2 * problem.weights_stride;
  pilots.weights_stride = problem.weights_stride * kStride;
  if (problem.k_start != nullptr) pilots.k_start = starts;
  if (problem.k_end != nullptr) pilots.k_end = ends;
  dosa_options plain = options;
  plain.index_form = DOSA_INDEX_ABSOLUTE;
  plain.order = DOSA_ORDER_ID;
  dosa_output output{};
  output.indices = buffers.pilot_ids;
  output.indices_stride = shape.topk;
  CudaShape own = shape;  // the same places for what the passes share, fewer rows
  own.num_queries = shape.pilot_rows;
  own.seeded = false;
  own.pack_queries = true;
  own.dense_units = dense_units(shape.topk);
  // Half the call's rows leave room for the packed queries of the pilots.
  const int half = shape.chunk_rows / 2 / gpu::kBlockRows * gpu::kBlockRows;
  const int rounded = (shape.pilot_rows + gpu::kBlockRows - 1) / gpu::kBlockRows * gpu::kBlockRows;
  own.chunk_rows = std::min(half, rounded);
  Run run(pilots, plain, own, workspace, stream, {});
  for (int64_t first = 0; first < own.num_queries; first += own.chunk_rows) {
    const int64_t left = own.num_queries - first;
    run.topk_chunk(output, first, static_cast<int>(std::min<int64_t>(left, own.chunk_rows)));
  }
}

}  // namespace

void cuda_topk(const dosa_problem& problem, const dosa_options& options, const dosa_output& output,
               void* workspace, cudaStream_t stream, PhaseHook hook) {
  const CudaShape shape = make_cuda_shape(problem, options);
  Run run(problem, options, shape, workspace, stream, hook);
  run.prepare_keys();
  if (shape.pilot_rows > 0) {
    run.mark("pilots");
    run_pilots(problem, options, shape, workspace, stream);
  }
  for (int64_t first = 0; first < shape.num_queries; first += shape.chunk_rows) {
    const int64_t left = shape.num_queries - first;
    run.topk_chunk(output, first, static_cast<int>(std::min<int64_t>(left, shape.chunk_rows)));
  }
  run.mark("end");
}

int cuda_screen_rows(const dosa_problem& problem, const dosa_options& options) {
  const CudaShape shape = make_cuda_shape(problem, options);
  return shape.path == CudaPath::kScreen ? shape.screen_rows : 0;
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
  const CudaShape shape = make_cuda_shape(problem, screened);
  Run run(problem, screened, shape, workspace, stream, {});
  run.prepare_keys();
  for (int64_t first = row_begin; first < row_end; first += shape.chunk_rows) {
    const int64_t left = row_end - first;
    run.bound_chunk(first, static_cast<int>(std::min<int64_t>(left, shape.chunk_rows)),
                    bounds + (first - row_begin) * bounds_stride, bounds_stride);
  }
}

}  // namespace dosa::engine
