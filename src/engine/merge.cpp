// SPDX-License-Identifier: Apache-2.0
#include "engine/merge.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/check_parts.hpp"
#include "engine/threads.hpp"
#include "numeric/arena.hpp"
#include "numeric/float_environment.hpp"
#include "select/merge.hpp"

namespace dosa::engine {
namespace {

int merge_threads(const dosa_candidates& candidates) {
  const std::int64_t rows = std::max<std::int64_t>(1, candidates.num_rows);
  return static_cast<int>(std::min<std::int64_t>(call_threads(candidates.threads), rows));
}

std::size_t merger_bytes(int topk) {
  Arena counter;
  select::Merger scratch;
  scratch.place(counter, topk);
  return counter.used();
}

dosa_status check_offsets(const dosa_candidates& candidates) {
  const std::int64_t row_length = candidates.num_rows + 1;
  for (std::int64_t list = 0; list < candidates.num_lists; ++list) {
    const std::int64_t* offsets = candidates.offsets + list * row_length;
    std::int64_t least = 0;
    for (std::int64_t row = 0; row < row_length; ++row) {
      if (offsets[row] < least) {
        return fail(DOSA_INVALID_ARGUMENT,
                    "candidates.offsets: found %lld (list %lld, row %lld), expected at least %lld",
                    static_cast<long long>(offsets[row]), static_cast<long long>(list),
                    static_cast<long long>(row), static_cast<long long>(least));
      }
      least = offsets[row];
    }
  }
  return DOSA_OK;
}

/// Whether any entry may be read.
bool has_entries(const dosa_candidates& candidates) {
  if (candidates.offsets == nullptr) {
    return candidates.num_rows > 0 && candidates.num_lists > 0 && candidates.width > 0;
  }
  for (std::int64_t list = 0; list < candidates.num_lists; ++list) {
    const std::int64_t* offsets = candidates.offsets + list * (candidates.num_rows + 1);
    if (offsets[candidates.num_rows] > offsets[0]) return true;
  }
  return false;
}

dosa_status check_lists(const dosa_candidates& candidates) {
  dosa_status status = check_candidates_layout(candidates);
  if (status == DOSA_OK && candidates.offsets != nullptr) status = check_offsets(candidates);
  if (status != DOSA_OK || !has_entries(candidates)) return status;
  if (candidates.scores == nullptr) return null_pointer("candidates.scores");
  if (candidates.ids == nullptr) return null_pointer("candidates.ids");
  return DOSA_OK;
}

}  // namespace

dosa_status check_candidates_layout(const dosa_candidates& candidates) {
  const struct {
    const char* name;
    const void* pointer;
    unsigned alignment;
  } arrays[] = {{"candidates.scores", candidates.scores, 4},
                {"candidates.ids", candidates.ids, 4},
                {"candidates.offsets", candidates.offsets, 8}};
  for (const auto& array : arrays) {
    const dosa_status status = check_alignment(array.name, array.pointer, array.alignment);
    if (status != DOSA_OK) return status;
  }
  if (candidates.offsets != nullptr) return DOSA_OK;
  return check_strides({{"candidates.list_stride", candidates.list_stride, candidates.width},
                        {"candidates.row_stride", candidates.row_stride, candidates.width}});
}

dosa_status check_merge_output(const dosa_candidates& candidates, const dosa_output* output) {
  if (output == nullptr) return null_pointer("output");
  if (output->struct_size != sizeof *output) {
    return bad_size("output", output->struct_size, sizeof *output);
  }
  if (output->rows != nullptr || output->stats != nullptr) {
    return fail(DOSA_INVALID_ARGUMENT, "output.%s: found a pointer, expected null",
                output->rows != nullptr ? "rows" : "stats");
  }
  if (candidates.num_rows > 0 && output->indices == nullptr) return null_pointer("output.indices");
  dosa_status status = check_alignment("output.indices", output->indices);
  if (status == DOSA_OK) status = check_alignment("output.scores", output->scores);
  if (status != DOSA_OK) return status;
  return check_strides(
      {{"output.indices_stride", output->indices_stride, candidates.topk},
       {"output.scores_stride", output->scores != nullptr ? output->scores_stride : candidates.topk,
        candidates.topk}});
}

dosa_status check_candidates_shape(const dosa_candidates* candidates) {
  if (candidates == nullptr) return null_pointer("candidates");
  if (candidates->struct_size != sizeof *candidates) {
    return bad_size("candidates", candidates->struct_size, sizeof *candidates);
  }
  constexpr long long kMost = std::numeric_limits<std::int32_t>::max();
  return check_ranges({{"candidates.num_rows", candidates->num_rows, 0, std::int64_t{1} << 40},
                       {"candidates.num_lists", candidates->num_lists, 0, DOSA_MAX_LISTS},
                       {"candidates.width", candidates->width, 0, kMost},
                       {"candidates.topk", candidates->topk, 1, DOSA_MAX_TOPK},
                       {"candidates.order", candidates->order, DOSA_ORDER_ID, DOSA_ORDER_SCORE},
                       {"candidates.threads", candidates->threads, 0, kMostCallThreads},
                       {"candidates.reserved", candidates->reserved, 0, 0}});
}

dosa_status check_merge(const dosa_candidates& candidates, const dosa_output* output,
                        const void* workspace, std::size_t workspace_bytes) {
  dosa_status status = check_lists(candidates);
  if (status == DOSA_OK) status = check_merge_output(candidates, output);
  if (status != DOSA_OK) return status;
  return check_workspace_size(workspace, workspace_bytes, merge_workspace_bytes(candidates));
}

std::size_t merge_workspace_bytes(const dosa_candidates& candidates) {
  return merger_bytes(candidates.topk) * static_cast<std::size_t>(merge_threads(candidates)) +
         Arena::kAlignment - 1;
}

void merge_topk(const dosa_candidates& candidates, const dosa_output& output, void* workspace) {
  auto* base = static_cast<std::byte*>(align_workspace(workspace));
  const std::size_t bytes = merger_bytes(candidates.topk);
#pragma omp parallel num_threads(merge_threads(candidates))
  {
    const FloatEnvironment environment;
    Arena arena(base + static_cast<std::size_t>(team_member()) * bytes);
    select::Merger merger;
    merger.place(arena, candidates.topk);
#pragma omp for schedule(dynamic, 16)
    for (std::int64_t row = 0; row < candidates.num_rows; ++row) {
      merger.merge_row(
          candidates, row, output.indices + row * output.indices_stride,
          output.scores != nullptr ? output.scores + row * output.scores_stride : nullptr);
    }
  }
}

}  // namespace dosa::engine
