// SPDX-License-Identifier: Apache-2.0
// Refuses misuse of the decode calls before any work, with one line that names argument, found and
// expected.
#ifndef DOSA_ENGINE_DECODE_CHECK_HPP
#define DOSA_ENGINE_DECODE_CHECK_HPP

#include <cstddef>

#include "dosa/dosa_decode.h"

namespace dosa::engine {

/// Shapes, cache geometry and options, of the host's engine and the device's; pointers but `cache`
/// are ignored.
dosa_status check_decode_geometry(const dosa_paged_problem* problem, const dosa_options* options);
/// The same, and a workspace limit that holds the host's engine.
dosa_status check_decode_shape(const dosa_paged_problem* problem, const dosa_options* options);
/// Pointers and strides; nothing behind a pointer is read.
dosa_status check_decode_pointers(const dosa_paged_problem& problem, const dosa_options& options);
/// The same, and whether every token that a length reaches has a page.
dosa_status check_decode_inputs(const dosa_paged_problem& problem, const dosa_options& options);
dosa_status check_decode_output(const dosa_paged_problem& problem, const dosa_output* output);
dosa_status check_decode_workspace(const dosa_paged_problem& problem, const dosa_options& options,
                                   const void* workspace, std::size_t bytes);

/// As for the steps: without and with a look at lengths, tables and slots.
dosa_status check_gather_pointers(const dosa_paged_gather_problem* problem);
dosa_status check_gather(const dosa_paged_gather_problem* problem);
dosa_status check_insert_pointers(const dosa_paged_insert_problem* problem);
dosa_status check_insert(const dosa_paged_insert_problem* problem);
dosa_status check_topk_range(int topk);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_CHECK_HPP
