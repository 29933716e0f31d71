// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_pages.hpp"

#include <algorithm>
#include <cstring>

#include "engine/decode_threads.hpp"

namespace dosa::engine {

void PagedKeys::copy(std::int64_t begin, std::int64_t count, std::uint8_t* codes,
                     std::int64_t stride, float* scales) const {
  const std::int64_t size = cache_.page_size;
  const auto dims = static_cast<std::size_t>(cache_.head_dim);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t first = (begin + done) % size;
    const std::int64_t run = std::min(size - first, count - done);
    const std::uint8_t* from = page((begin + done) / size);
    const std::uint8_t* keys = from + first * cache_.head_dim;
    if (stride == cache_.head_dim) {
      std::memcpy(codes + done * stride, keys, static_cast<std::size_t>(run) * dims);
    } else {
      for (std::int64_t n = 0; n < run; ++n) {
        std::memcpy(codes + (done + n) * stride, keys + n * cache_.head_dim, dims);
      }
    }
    std::memcpy(scales + done, from + size * cache_.head_dim + first * sizeof(float),
                static_cast<std::size_t>(run) * sizeof(float));
    done += run;
  }
}

void PagedKeys::copy_listed(const std::int32_t* positions, int count, std::uint8_t* codes,
                            float* scales) const {
  for (int n = 0; n < count; ++n) {
    copy(positions[n], 1, codes + static_cast<std::int64_t>(n) * cache_.head_dim, cache_.head_dim,
         scales + n);
  }
}

void gather(const dosa_paged_gather_problem& problem) {
  // Pieces of requests, so that one long request is shared by all threads.
  constexpr std::int64_t kPiece = 4096;
#pragma omp parallel num_threads(call_threads(problem.threads))
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t first = problem.cu_seq_lens[b];
    const std::int64_t length = problem.cu_seq_lens[b + 1] - first;
    const PagedKeys keys(*problem.cache, problem.block_table + b * problem.block_table_stride);
#pragma omp for schedule(static) nowait
    for (std::int64_t begin = 0; begin < length; begin += kPiece) {
      keys.copy(begin, std::min(kPiece, length - begin),
                problem.k + (first + begin) * problem.k_stride, problem.k_stride,
                problem.k_scale + first + begin);
    }
  }
}

}  // namespace dosa::engine
