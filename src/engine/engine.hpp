// SPDX-License-Identifier: Apache-2.0
// Joins the steps: partitions the rows into groups and runs them on threads.
#ifndef DOSA_ENGINE_ENGINE_HPP
#define DOSA_ENGINE_ENGINE_HPP

#include <cstddef>

#include "dosa/dosa.h"
#include "engine/audit.hpp"
#include "plan/certificate.hpp"

namespace dosa::engine {

/// How a call is cut: threads that run at once, and rows of a group. Depends on the shape, the
/// options and the thread count alone; bytes is 0 where even one row of one thread exceeds the
/// limit.
struct Layout {
  int threads = 1;
  int group_rows = 1;
  std::size_t bytes = 0;
};
Layout layout(const dosa_problem& problem, const dosa_options& options);

/// Least workspace that any layout of this shape needs, for the error message.
std::size_t least_bytes(const dosa_problem& problem, const dosa_options& options);

/// All arguments are valid and workspace holds layout().bytes.
void topk(const dosa_problem& problem, const dosa_options& options, const dosa_output& output,
          void* workspace, Audit* audit);

void scores(const dosa_problem& problem, const dosa_options& options, std::int64_t row_begin,
            std::int64_t row_end, float* out, std::int64_t stride, void* workspace);

void bounds(const dosa_problem& problem, const dosa_options& options, std::int64_t row,
            dosa_certificate* certificate, float* out, void* workspace);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_ENGINE_HPP
