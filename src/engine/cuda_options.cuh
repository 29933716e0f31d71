// SPDX-License-Identifier: Apache-2.0
// What the options of a call mean to the kernels.
#ifndef DOSA_ENGINE_CUDA_OPTIONS_CUH
#define DOSA_ENGINE_CUDA_OPTIONS_CUH

#include "dosa/dosa.h"
#include "plan/plan_sm90.cuh"
#include "select/select_sm90.cuh"

namespace dosa::engine {

inline plan::PlanRules plan_rules(const dosa_options& options) {
  plan::PlanRules rules{};
  rules.strength = options.retain == DOSA_RETAIN_STRENGTH;
  rules.projection = options.projection != 0;
  rules.triangle = options.allowance != DOSA_ALLOWANCE_JOINT;
  rules.joint = options.allowance != DOSA_ALLOWANCE_TRIANGLE;
  rules.support = 0.5f;
  if (options.aggregate == DOSA_AGGREGATE_ALL) rules.support = 0.0f;
  if (options.aggregate == DOSA_AGGREGATE_NONE) rules.support = 2.0f;
  return rules;
}

/// How the answers of the rows from `first` on are written; `stats` may be null.
inline select::OutputForm output_form(const dosa_problem& problem, const dosa_options& options,
                                      const dosa_output& output, int64_t first,
                                      dosa_row_stats* stats) {
  select::OutputForm form{};
  form.indices = output.indices + first * output.indices_stride;
  form.indices_stride = output.indices_stride;
  if (output.scores != nullptr) {
    form.scores = output.scores + first * output.scores_stride;
    form.scores_stride = output.scores_stride;
  }
  form.topk = problem.topk;
  form.relative = options.index_form != DOSA_INDEX_ABSOLUTE;
  form.by_score = options.order == DOSA_ORDER_SCORE;
  form.stats = stats;
  if (options.index_form == DOSA_INDEX_OFFSET) form.offset = problem.index_offset + first;
  if (options.index_form == DOSA_INDEX_SLOT) {
    form.table = problem.page_table + first * problem.page_table_stride;
    form.table_stride = problem.page_table_stride;
    form.page_size = problem.page_size;
  }
  return form;
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_OPTIONS_CUH
