// SPDX-License-Identifier: Apache-2.0
// dosa_cuda.h -> device engine: checks first, then launches; no exception crosses the C interface.
#include <cuda_runtime.h>

#include "dosa/dosa_cuda.h"
#include "engine/cuda_guard.hpp"
#include "engine/cuda_layout.cuh"
#include "engine/cuda_model.hpp"
#include "engine/cuda_run.cuh"
#include "engine/error.hpp"
#include "gpu/check.hpp"

namespace dosa::engine {
namespace {

constexpr uintptr_t kPointerAlignment = 16;
constexpr uintptr_t kWorkspaceAlignment = 256;

dosa_status bad_range(const char* name, int64_t found, int64_t low, int64_t high) {
  return fail(DOSA_INVALID_ARGUMENT, "%s: found %lld, expected %lld to %lld", name,
              static_cast<long long>(found), static_cast<long long>(low),
              static_cast<long long>(high));
}

struct Range {
  const char* name;
  int64_t value;
  int64_t low;
  int64_t high;
};

template <size_t kCount>
dosa_status check_ranges(const Range (&ranges)[kCount]) {
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return bad_range(range.name, range.value, range.low, range.high);
    }
  }
  return DOSA_OK;
}

dosa_status check_options(const dosa_options& options) {
  const Range ranges[] = {
      {"options.mode", options.mode, DOSA_MODE_AUTO, DOSA_MODE_DOSA},
      {"options.index_form", options.index_form, 0, DOSA_INDEX_SLOT},
      {"options.order", options.order, 0, DOSA_ORDER_SCORE},
      {"options.heads", options.heads, 0, DOSA_MAX_HEADS},
      {"options.threshold", options.threshold, 0, DOSA_THRESHOLD_FIXED},
      {"options.forced_first", options.forced_first, 0, INT32_MAX},
      {"options.forced_last", options.forced_last, 0, INT32_MAX},
      {"options.retain", options.retain, 0, DOSA_RETAIN_STRENGTH},
      {"options.projection", options.projection, 0, 1},
      {"options.allowance", options.allowance, 0, DOSA_ALLOWANCE_GROUPED},
      {"options.aggregate", options.aggregate, 0, DOSA_AGGREGATE_NONE},
      {"options.statistics", options.statistics, 0, DOSA_STATISTICS_SEEDS},
      {"options.score_model", options.score_model, DOSA_MODEL_DEFAULT, DOSA_MODEL_MMA_FP8}};
  const dosa_status status = check_ranges(ranges);
  if (status != DOSA_OK) return status;
  if (options.allowance == DOSA_ALLOWANCE_GROUPED) {
    return fail(DOSA_UNSUPPORTED, "options.allowance: found grouped, expected one norm per key");
  }
  if (options.aggregate == DOSA_AGGREGATE_TWO || options.aggregate == DOSA_AGGREGATE_ABSOLUTE) {
    return fail(DOSA_UNSUPPORTED,
                "options.aggregate: found %d, expected support, all or none (one aggregate)",
                options.aggregate);
  }
  if (options.statistics == DOSA_STATISTICS_SEEDS) {
    return fail(DOSA_UNSUPPORTED, "options.statistics: found seeds, expected hard or random");
  }
  return DOSA_OK;
}

dosa_status check_shape(const dosa_problem* problem, const dosa_options* options) {
  if (problem == nullptr) return fail(DOSA_INVALID_ARGUMENT, "problem: found null");
  if (options == nullptr) return fail(DOSA_INVALID_ARGUMENT, "options: found null");
  if (problem->struct_size != sizeof *problem) {
    return fail(DOSA_INVALID_ARGUMENT, "problem.struct_size: found %zu, expected %zu",
                problem->struct_size, sizeof *problem);
  }
  if (options->struct_size != sizeof *options) {
    return fail(DOSA_INVALID_ARGUMENT, "options.struct_size: found %zu, expected %zu",
                options->struct_size, sizeof *options);
  }
  const Range ranges[] = {{"problem.num_queries", problem->num_queries, 0, int64_t{1} << 40},
                          {"problem.num_keys", problem->num_keys, 0, INT32_MAX},
                          {"problem.num_heads", problem->num_heads, 1, DOSA_MAX_HEADS},
                          {"problem.topk", problem->topk, 1, DOSA_CUDA_MAX_TOPK}};
  const dosa_status status = check_ranges(ranges);
  if (status != DOSA_OK) return status;
  if (problem->head_dim != 32 && problem->head_dim != 64 && problem->head_dim != 128) {
    return fail(DOSA_UNSUPPORTED, "problem.head_dim: found %d, expected 32, 64 or 128",
                problem->head_dim);
  }
  return check_options(*options);
}

dosa_status check_pointer(const char* name, const void* pointer, uintptr_t alignment) {
  if (pointer == nullptr) {
    return fail(DOSA_INVALID_ARGUMENT, "%s: found null, expected a device pointer", name);
  }
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "%s: found %p, expected a multiple of %llu", name, pointer,
                static_cast<unsigned long long>(alignment));
  }
  return DOSA_OK;
}

struct Pointer {
  const char* name;
  const void* value;
  uintptr_t alignment;
  bool needed;
};

template <size_t kCount>
dosa_status check_pointers(const Pointer (&pointers)[kCount]) {
  for (const Pointer& pointer : pointers) {
    if (!pointer.needed && pointer.value == nullptr) continue;
    const dosa_status status = check_pointer(pointer.name, pointer.value, pointer.alignment);
    if (status != DOSA_OK) return status;
  }
  return DOSA_OK;
}

dosa_status check_inputs(const dosa_problem& problem, const dosa_options& options) {
  const bool queries = problem.num_queries > 0;
  const bool keys = problem.num_keys > 0;
  const int64_t row = static_cast<int64_t>(problem.num_heads) * problem.head_dim;
  const Range strides[] = {
      {"problem.q_stride", problem.q_stride, row, INT64_MAX},
      {"problem.k_stride", problem.k_stride, problem.head_dim, INT32_MAX},
      {"problem.weights_stride", problem.weights_stride, problem.num_heads, INT64_MAX}};
  dosa_status status = check_ranges(strides);
  if (status != DOSA_OK) return status;
  if (problem.k_stride % static_cast<int64_t>(kPointerAlignment) != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "problem.k_stride: found %lld, expected a multiple of %llu",
                static_cast<long long>(problem.k_stride),
                static_cast<unsigned long long>(kPointerAlignment));
  }
  const bool slots = options.index_form == DOSA_INDEX_SLOT && queries;
  const bool offsets = options.index_form == DOSA_INDEX_OFFSET && queries;
  const Pointer pointers[] = {
      {"problem.q", problem.q, kPointerAlignment, queries},
      {"problem.k", problem.k, kPointerAlignment, keys},
      {"problem.k_scale", problem.k_scale, sizeof(float), keys},
      {"problem.weights", problem.weights, sizeof(float), queries},
      {"problem.k_start", problem.k_start, sizeof(int32_t), false},
      {"problem.k_end", problem.k_end, sizeof(int32_t), false},
      {"problem.index_offset", problem.index_offset, sizeof(int32_t), offsets},
      {"problem.page_table", problem.page_table, sizeof(int32_t), slots}};
  status = check_pointers(pointers);
  if (status != DOSA_OK || !slots) return status;
  const Range pages[] = {{"problem.page_size", problem.page_size, 1, INT32_MAX},
                         {"problem.page_table_stride", problem.page_table_stride, 0, INT64_MAX}};
  return check_ranges(pages);
}

dosa_status check_output(const dosa_problem& problem, const dosa_output* output) {
  if (output == nullptr) return fail(DOSA_INVALID_ARGUMENT, "output: found null");
  if (output->struct_size != sizeof *output) {
    return fail(DOSA_INVALID_ARGUMENT, "output.struct_size: found %zu, expected %zu",
                output->struct_size, sizeof *output);
  }
  const Pointer pointers[] = {
      {"output.indices", output->indices, sizeof(int32_t), problem.num_queries > 0},
      {"output.scores", output->scores, sizeof(float), false},
      {"output.rows", output->rows, alignof(dosa_row_stats), false},
      {"output.stats", output->stats, alignof(dosa_stats), false}};
  const dosa_status status = check_pointers(pointers);
  if (status != DOSA_OK) return status;
  const int64_t scores_stride = output->scores != nullptr ? output->scores_stride : problem.topk;
  const Range strides[] = {
      {"output.indices_stride", output->indices_stride, problem.topk, INT64_MAX},
      {"output.scores_stride", scores_stride, problem.topk, INT64_MAX}};
  return check_ranges(strides);
}

size_t bytes_for(const dosa_problem& problem, const dosa_options& options) {
  CudaBuffers unused{};
  return place_cuda_buffers(make_cuda_shape(problem, options), nullptr, unused);
}

dosa_status check_workspace(const void* workspace, size_t found, size_t needed) {
  const dosa_status status = check_pointer("workspace", workspace, kWorkspaceAlignment);
  if (status != DOSA_OK) return status;
  if (found < needed) {
    return fail(DOSA_WORKSPACE_TOO_SMALL, "workspace_bytes: found %zu, expected at least %zu",
                found, needed);
  }
  return DOSA_OK;
}

}  // namespace
}  // namespace dosa::engine

using dosa::engine::fail;
using dosa::engine::guarded_device_call;

extern "C" {

dosa_status dosa_cuda_options_init(dosa_options* options, size_t struct_size) {
  const dosa_status status = dosa_options_init(options, struct_size);
  if (status != DOSA_OK) return status;
  options->workspace_limit = uint64_t{2} << 30;
  return DOSA_OK;
}

dosa_status dosa_cuda_workspace_bytes(const dosa_problem* problem, const dosa_options* options,
                                      size_t* bytes) {
  return guarded_device_call([&] {
    const dosa_status status = dosa::engine::check_shape(problem, options);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) return fail(DOSA_INVALID_ARGUMENT, "bytes: found null");
    *bytes = dosa::engine::bytes_for(*problem, *options);
    return DOSA_OK;
  });
}

dosa_status dosa_cuda_topk(const dosa_problem* problem, const dosa_options* options,
                           const dosa_output* output, void* workspace, size_t workspace_bytes,
                           void* stream) {
  return guarded_device_call([&] {
    dosa_status status = dosa::engine::check_shape(problem, options);
    if (status == DOSA_OK) status = dosa::engine::check_inputs(*problem, *options);
    if (status == DOSA_OK) status = dosa::engine::check_output(*problem, output);
    if (status == DOSA_OK) {
      status = dosa::engine::check_workspace(workspace, workspace_bytes,
                                             dosa::engine::bytes_for(*problem, *options));
    }
    if (status == DOSA_OK) status = dosa::engine::check_device(*problem, *options);
    if (status != DOSA_OK) return status;
    dosa::engine::cuda_topk(*problem, *options, *output, workspace,
                            static_cast<cudaStream_t>(stream));
    return DOSA_OK;
  });
}

dosa_status dosa_cuda_scores(const dosa_problem* problem, const dosa_options* options,
                             int64_t row_begin, int64_t row_end, float* scores,
                             int64_t scores_stride, void* workspace, size_t workspace_bytes,
                             void* stream) {
  return guarded_device_call([&] {
    dosa_status status = dosa::engine::check_shape(problem, options);
    if (status == DOSA_OK) status = dosa::engine::check_inputs(*problem, *options);
    if (status != DOSA_OK) return status;
    const dosa::engine::Range ranges[] = {
        {"row_begin", row_begin, 0, problem->num_queries},
        {"row_end", row_end, row_begin, problem->num_queries},
        {"scores_stride", scores_stride, problem->num_keys, INT64_MAX}};
    status = dosa::engine::check_ranges(ranges);
    if (status == DOSA_OK) status = dosa::engine::check_pointer("scores", scores, sizeof(float));
    dosa_options full = *options;
    full.mode = DOSA_MODE_FULL;
    if (status == DOSA_OK) {
      status = dosa::engine::check_workspace(workspace, workspace_bytes,
                                             dosa::engine::bytes_for(*problem, full));
    }
    if (status == DOSA_OK) status = dosa::engine::check_device(*problem, *options);
    if (status != DOSA_OK) return status;
    dosa::engine::cuda_scores(*problem, *options, row_begin, row_end, scores, scores_stride,
                              workspace, static_cast<cudaStream_t>(stream));
    return DOSA_OK;
  });
}

dosa_status dosa_cuda_read_counters(const void* workspace, dosa_cuda_counters* counters,
                                    void* stream) {
  return guarded_device_call([&] {
    if (counters == nullptr || counters->struct_size != sizeof *counters) {
      return fail(DOSA_INVALID_ARGUMENT, "counters: expected a structure with its size set");
    }
    const dosa_status status =
        dosa::engine::check_pointer("workspace", workspace, dosa::engine::kWorkspaceAlignment);
    if (status != DOSA_OK) return status;
    dosa::engine::CudaTotals totals{};
    DOSA_CUDA(cudaMemcpyAsync(&totals, workspace, sizeof totals, cudaMemcpyDeviceToHost,
                              static_cast<cudaStream_t>(stream)));
    DOSA_CUDA(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    counters->refined = static_cast<int64_t>(totals.refined);
    counters->recovered_rows = static_cast<int64_t>(totals.recovered);
    return DOSA_OK;
  });
}

}  // extern "C"
