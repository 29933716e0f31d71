// SPDX-License-Identifier: Apache-2.0
// Refuses misuse before any work, with one line that names argument, found and expected.
#ifndef DOSA_ENGINE_CHECK_HPP
#define DOSA_ENGINE_CHECK_HPP

#include <cstddef>

#include "dosa/dosa.h"

namespace dosa::engine {

/// Options alone, whatever the shape; struct_size is right.
dosa_status check_options(const dosa_options& options);
/// Shapes and options only; pointers are ignored.
dosa_status check_shape(const dosa_problem* problem, const dosa_options* options);
/// Inputs: pointers, strides, and what the chosen index form needs.
dosa_status check_inputs(const dosa_problem& problem, const dosa_options& options);
dosa_status check_output(const dosa_problem& problem, const dosa_output* output);
/// The workspace against what the layout of this shape needs.
dosa_status check_workspace(const dosa_problem& problem, const dosa_options& options,
                            const void* workspace, std::size_t bytes);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CHECK_HPP
