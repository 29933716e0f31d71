// SPDX-License-Identifier: Apache-2.0
// Merging lists of scored keys, row by row on threads.
#ifndef DOSA_ENGINE_MERGE_HPP
#define DOSA_ENGINE_MERGE_HPP

#include <cstddef>

#include "dosa/dosa_merge.h"

namespace dosa::engine {

/// Sizes and options only; pointers are ignored.
dosa_status check_candidates_shape(const dosa_candidates* candidates);
/// Alignment of the candidates' pointers and, where they are padded, their strides; nothing behind
/// the pointers is read.
dosa_status check_candidates_layout(const dosa_candidates& candidates);
/// Pointers and strides of the answer.
dosa_status check_merge_output(const dosa_candidates& candidates, const dosa_output* output);
/// Pointers, strides and offsets of both sides, and the workspace.
dosa_status check_merge(const dosa_candidates& candidates, const dosa_output* output,
                        const void* workspace, std::size_t workspace_bytes);

/// Depends on the number of rows, K and the thread count alone.
std::size_t merge_workspace_bytes(const dosa_candidates& candidates);

/// All arguments are valid.
void merge_topk(const dosa_candidates& candidates, const dosa_output& output, void* workspace);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_MERGE_HPP
