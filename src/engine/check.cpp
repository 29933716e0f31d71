// SPDX-License-Identifier: Apache-2.0
#include "engine/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/check_parts.hpp"
#include "engine/engine.hpp"
#include "engine/error.hpp"
#include "engine/threads.hpp"

namespace dosa::engine {
namespace {

constexpr std::uint64_t kLeastLimit = std::uint64_t{16} << 20;

/// Every position that a row may return has to have a slot.
dosa_status check_table(const dosa_problem& problem) {
  if (problem.page_size < 1) return bad_range("problem.page_size", problem.page_size, 1, INT32_MAX);
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    const std::int64_t start = std::clamp<std::int64_t>(
        problem.k_start != nullptr ? problem.k_start[row] : 0, 0, problem.num_keys);
    const std::int64_t end = std::clamp<std::int64_t>(
        problem.k_end != nullptr ? problem.k_end[row] : problem.num_keys, 0, problem.num_keys);
    const std::int64_t pages = (end - start + problem.page_size - 1) / problem.page_size;
    if (end > start && pages > problem.page_table_pages) {
      return fail(DOSA_INVALID_ARGUMENT,
                  "problem.page_table_pages: found %lld, expected at least %lld (row %lld)",
                  static_cast<long long>(problem.page_table_pages), static_cast<long long>(pages),
                  static_cast<long long>(row));
    }
  }
  return DOSA_OK;
}

}  // namespace

dosa_status check_options(const dosa_options& options) {
  constexpr long long kMaxForced = std::numeric_limits<std::int32_t>::max();
  const Range ranges[] = {
      {"options.mode", options.mode, DOSA_MODE_AUTO, DOSA_MODE_DOSA},
      {"options.threshold", options.threshold, DOSA_THRESHOLD_RISING, DOSA_THRESHOLD_FIXED},
      {"options.index_form", options.index_form, DOSA_INDEX_ABSOLUTE, DOSA_INDEX_SLOT},
      {"options.order", options.order, DOSA_ORDER_ID, DOSA_ORDER_SCORE},
      {"options.heads", options.heads, 0, DOSA_MAX_HEADS},
      {"options.threads", options.threads, 0, kMostCallThreads},
      {"options.forced_first", options.forced_first, 0, kMaxForced},
      {"options.forced_last", options.forced_last, 0, kMaxForced},
      {"options.retain", options.retain, DOSA_RETAIN_UNCERTAINTY, DOSA_RETAIN_STRENGTH},
      {"options.projection", options.projection, 0, 1},
      {"options.allowance", options.allowance, DOSA_ALLOWANCE_BEST, DOSA_ALLOWANCE_GROUPED},
      {"options.aggregate", options.aggregate, DOSA_AGGREGATE_SUPPORT, DOSA_AGGREGATE_NONE},
      {"options.statistics", options.statistics, DOSA_STATISTICS_HARD, DOSA_STATISTICS_SEEDS},
      {"options.score_model", options.score_model, DOSA_MODEL_DEFAULT, DOSA_MODEL_MMA_FP8}};
  const dosa_status status = check_ranges(std::begin(ranges), std::end(ranges));
  if (status != DOSA_OK) return status;
  if (options.score_model > DOSA_MODEL_IEEE) {
    return fail(DOSA_UNSUPPORTED, "options.score_model: found %d, expected 0 or 1 on the CPU",
                options.score_model);
  }
  const int groups = options.allowance_groups;
  if (groups != 2 && groups != 4 && groups != 8) {
    return fail(DOSA_INVALID_ARGUMENT, "options.allowance_groups: found %d, expected 2, 4 or 8",
                groups);
  }
  if (options.workspace_limit < kLeastLimit) {
    return fail(DOSA_INVALID_ARGUMENT,
                "options.workspace_limit: found %llu bytes, expected at least %llu",
                static_cast<unsigned long long>(options.workspace_limit),
                static_cast<unsigned long long>(kLeastLimit));
  }
  return DOSA_OK;
}

dosa_status check_shape(const dosa_problem* problem, const dosa_options* options) {
  if (problem == nullptr) return null_pointer("problem");
  if (options == nullptr) return null_pointer("options");
  if (problem->struct_size != sizeof *problem) {
    return bad_size("problem", problem->struct_size, sizeof *problem);
  }
  if (options->struct_size != sizeof *options) {
    return bad_size("options", options->struct_size, sizeof *options);
  }
  const Range ranges[] = {
      {"problem.num_queries", problem->num_queries, 0, std::int64_t{1} << 40},
      {"problem.num_keys", problem->num_keys, 0, std::numeric_limits<std::int32_t>::max()},
      {"problem.num_heads", problem->num_heads, 1, DOSA_MAX_HEADS},
      {"problem.head_dim", problem->head_dim, 16, DOSA_MAX_HEAD_DIM},
      {"problem.topk", problem->topk, 1, DOSA_MAX_TOPK}};
  dosa_status status = check_ranges(std::begin(ranges), std::end(ranges));
  if (status != DOSA_OK) return status;
  if (problem->head_dim % 16 != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "problem.head_dim: found %d, expected a multiple of 16",
                problem->head_dim);
  }
  status = check_options(*options);
  if (status != DOSA_OK) return status;
  if (options->heads > problem->num_heads) {
    return bad_range("options.heads", options->heads, 0, problem->num_heads);
  }
  if (options->allowance == DOSA_ALLOWANCE_GROUPED &&
      problem->head_dim % (8 * options->allowance_groups) != 0) {
    return fail(DOSA_INVALID_ARGUMENT,
                "options.allowance_groups: found %d, expected a divisor of head_dim / 8 = %d",
                options->allowance_groups, problem->head_dim / 8);
  }
  if (layout(*problem, *options).bytes == 0) {
    return limit_too_small(options->workspace_limit, least_bytes(*problem, *options));
  }
  return DOSA_OK;
}

dosa_status check_inputs(const dosa_problem& problem, const dosa_options& options) {
  const bool queries = problem.num_queries > 0;
  const bool keys = problem.num_keys > 0;
  if (queries && problem.q == nullptr) return null_pointer("problem.q");
  if (queries && problem.weights == nullptr) return null_pointer("problem.weights");
  if (keys && problem.k == nullptr) return null_pointer("problem.k");
  if (keys && problem.k_scale == nullptr) return null_pointer("problem.k_scale");
  const struct {
    const char* name;
    const void* pointer;
  } arrays[] = {
      {"problem.weights", problem.weights},           {"problem.k_scale", problem.k_scale},
      {"problem.k_start", problem.k_start},           {"problem.k_end", problem.k_end},
      {"problem.index_offset", problem.index_offset}, {"problem.page_table", problem.page_table}};
  for (const auto& array : arrays) {
    const dosa_status aligned = check_alignment(array.name, array.pointer);
    if (aligned != DOSA_OK) return aligned;
  }
  const std::int64_t row = static_cast<std::int64_t>(problem.num_heads) * problem.head_dim;
  const Stride strides[] = {{"problem.q_stride", problem.q_stride, row},
                            {"problem.k_stride", problem.k_stride, problem.head_dim},
                            {"problem.weights_stride", problem.weights_stride, problem.num_heads}};
  const dosa_status status = check_strides(std::begin(strides), std::end(strides));
  if (status != DOSA_OK || !queries) return status;
  if (options.index_form == DOSA_INDEX_OFFSET && problem.index_offset == nullptr) {
    return null_pointer("problem.index_offset");
  }
  if (options.index_form != DOSA_INDEX_SLOT) return DOSA_OK;
  if (problem.page_table == nullptr) return null_pointer("problem.page_table");
  if (problem.page_table_stride != 0 && problem.page_table_stride < problem.page_table_pages) {
    return fail(DOSA_INVALID_ARGUMENT,
                "problem.page_table_stride: found %lld, expected 0 or at least %lld",
                static_cast<long long>(problem.page_table_stride),
                static_cast<long long>(problem.page_table_pages));
  }
  return check_table(problem);
}

dosa_status check_output(const dosa_problem& problem, const dosa_output* output) {
  if (output == nullptr) return null_pointer("output");
  if (output->struct_size != sizeof *output) {
    return bad_size("output", output->struct_size, sizeof *output);
  }
  if (output->stats != nullptr && output->stats->struct_size != sizeof *output->stats) {
    return bad_size("output.stats", output->stats->struct_size, sizeof *output->stats);
  }
  if (problem.num_queries > 0 && output->indices == nullptr) return null_pointer("output.indices");
  dosa_status aligned = check_alignment("output.indices", output->indices);
  if (aligned == DOSA_OK) aligned = check_alignment("output.scores", output->scores);
  if (aligned != DOSA_OK) return aligned;
  const Stride strides[] = {
      {"output.indices_stride", output->indices_stride, problem.topk},
      {"output.scores_stride", output->scores != nullptr ? output->scores_stride : problem.topk,
       problem.topk}};
  return check_strides(std::begin(strides), std::end(strides));
}

dosa_status check_workspace(const dosa_problem& problem, const dosa_options& options,
                            const void* workspace, std::size_t bytes) {
  return check_workspace_size(workspace, bytes, layout(problem, options).bytes);
}

}  // namespace dosa::engine
