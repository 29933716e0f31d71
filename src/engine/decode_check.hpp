// SPDX-License-Identifier: Apache-2.0
// Refuses misuse of the decode calls before any work, with one line that names argument, found and
// expected.
#ifndef DOSA_ENGINE_DECODE_CHECK_HPP
#define DOSA_ENGINE_DECODE_CHECK_HPP

#include <cstddef>

#include "dosa/dosa_decode.h"

namespace dosa::engine {

/// Shapes, cache geometry and options; pointers but `cache` are ignored.
dosa_status check_decode_shape(const dosa_paged_problem* problem, const dosa_options* options);
/// Pointers, strides, and whether every token that a length reaches has a page.
dosa_status check_decode_inputs(const dosa_paged_problem& problem, const dosa_options& options);
dosa_status check_decode_output(const dosa_paged_problem& problem, const dosa_output* output);
dosa_status check_decode_workspace(const dosa_paged_problem& problem, const dosa_options& options,
                                   const void* workspace, std::size_t bytes);

dosa_status check_gather(const dosa_paged_gather_problem* problem);
dosa_status check_insert(const dosa_paged_insert_problem* problem);
dosa_status check_topk_range(int topk);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_CHECK_HPP
