// SPDX-License-Identifier: Apache-2.0
// Decoding: few queries per request, keys in pages. Requests are spread over the threads; a request
// that is a large part of the call is shared by all of them, key range by key range.
#ifndef DOSA_ENGINE_DECODE_HPP
#define DOSA_ENGINE_DECODE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dosa/dosa_decode.h"

namespace dosa::engine {

/// Tokens that query t of request b sees.
inline std::int64_t context_length(const dosa_paged_problem& problem, std::int64_t b, int t) {
  const std::int32_t* lengths = problem.context_lens + b * problem.context_lens_stride;
  const std::int64_t length = problem.lengths == DOSA_LENGTHS_PER_REQUEST
                                  ? std::int64_t{lengths[0]} - (problem.next_n - 1 - t)
                                  : lengths[t];
  return std::clamp<std::int64_t>(length, 0, problem.max_context);
}

/// The longest of a request's queries.
inline std::int64_t longest_context(const dosa_paged_problem& problem, std::int64_t b) {
  std::int64_t longest = 0;
  for (int t = 0; t < problem.next_n; ++t) {
    longest = std::max(longest, context_length(problem, b, t));
  }
  return longest;
}

/// Threads that the workspace limit holds, and the bytes that they need; 0 where it holds none.
struct DecodeLayout {
  int threads = 1;
  std::size_t bytes = 0;
};
DecodeLayout decode_layout(const dosa_paged_problem& problem, const dosa_options& options);
/// Least workspace of any layout of this shape, for the error message.
std::size_t least_decode_bytes(const dosa_paged_problem& problem, const dosa_options& options);

/// All arguments are valid and workspace holds decode_layout().bytes.
void paged_topk(const dosa_paged_problem& problem, const dosa_options& options,
                const dosa_output& output, void* workspace);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_HPP
