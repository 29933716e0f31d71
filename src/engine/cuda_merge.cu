// SPDX-License-Identifier: Apache-2.0
// dosa_cuda_merge_topk: checks, then one launch.
#include <cstdint>

#include "dosa/dosa_cuda.h"
#include "engine/check_parts.hpp"
#include "engine/cuda_guard.hpp"
#include "engine/merge.hpp"
#include "gpu/check.hpp"
#include "select/merge_sm90.cuh"

namespace dosa::engine {
namespace {

dosa_status check_candidates(const dosa_candidates* candidates) {
  dosa_status status = check_candidates_shape(candidates);
  if (status == DOSA_OK) {
    int most = 0;
    DOSA_CUDA(select::most_merged_topk(most));
    status =
        check_ranges({{"candidates.topk", candidates->topk, 1, most},
                      {"candidates.num_lists", candidates->num_lists, 0, DOSA_CUDA_MAX_LISTS}});
  }
  if (status == DOSA_OK) status = check_candidates_layout(*candidates);
  if (status != DOSA_OK) return status;
  const bool padded = candidates->offsets == nullptr;
  if (candidates->num_rows == 0 || candidates->num_lists == 0) return DOSA_OK;
  if (padded && candidates->width == 0) return DOSA_OK;
  if (candidates->scores == nullptr) return null_pointer("candidates.scores");
  if (candidates->ids == nullptr) return null_pointer("candidates.ids");
  return DOSA_OK;
}

dosa_status merge(const dosa_candidates* candidates, const dosa_output* output,
                  cudaStream_t stream) {
  dosa_status status = check_candidates(candidates);
  if (status == DOSA_OK) status = check_merge_output(*candidates, output);
  if (status != DOSA_OK) return status;
  select::MergeParams params{};
  params.scores = candidates->scores;
  params.ids = candidates->ids;
  params.offsets = candidates->offsets;
  params.list_stride = candidates->list_stride;
  params.row_stride = candidates->row_stride;
  params.rows = candidates->num_rows;
  params.lists = static_cast<int>(candidates->num_lists);
  params.width = static_cast<int>(candidates->width);
  params.topk = candidates->topk;
  params.by_score = candidates->order == DOSA_ORDER_SCORE;
  params.indices = output->indices;
  params.indices_stride = output->indices_stride;
  params.out_scores = output->scores;
  params.scores_stride = output->scores_stride;
  DOSA_CUDA(select::launch_merge_sm90(params, stream));
  return DOSA_OK;
}

}  // namespace
}  // namespace dosa::engine

extern "C" dosa_status dosa_cuda_merge_topk(const dosa_candidates* candidates,
                                            const dosa_output* output, void* stream) {
  return dosa::engine::guarded_device_call(
      [&] { return dosa::engine::merge(candidates, output, static_cast<cudaStream_t>(stream)); });
}
