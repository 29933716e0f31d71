// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_pages.hpp"

#include <algorithm>
#include <cstring>

#include "engine/threads.hpp"

namespace dosa::engine {
namespace {

constexpr std::int64_t kScaleBytes = sizeof(float);

}  // namespace

void PagedKeys::copy(std::int64_t begin, std::int64_t count, std::uint8_t* codes,
                     std::int64_t stride, float* scales) const {
  const std::int64_t dims = cache_.head_dim;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t place = place_of(begin + done);
    const std::int64_t run = std::min(cache_.page_size - place, count - done);
    const std::uint8_t* page = page_of(begin + done);
    const std::uint8_t* keys = page + place * dims;
    if (stride == dims) {
      std::memcpy(codes + done * stride, keys, static_cast<std::size_t>(run * dims));
    } else {
      for (std::int64_t n = 0; n < run; ++n) {
        std::memcpy(codes + (done + n) * stride, keys + n * dims, static_cast<std::size_t>(dims));
      }
    }
    std::memcpy(scales + done, page + cache_.page_size * dims + place * kScaleBytes,
                static_cast<std::size_t>(run * kScaleBytes));
    done += run;
  }
}

/// The lines of a key and of its scale: tokens strewn over the pages are no stream.
void PagedKeys::prefetch(std::int64_t position) const {
  constexpr std::int64_t kLine = 64;
  const std::uint8_t* page = page_of(position);
  const std::int64_t place = place_of(position);
  const std::uint8_t* key = page + place * cache_.head_dim;
  for (std::int64_t d = 0; d < cache_.head_dim; d += kLine) __builtin_prefetch(key + d);
  __builtin_prefetch(page + cache_.page_size * static_cast<std::int64_t>(cache_.head_dim) +
                     place * kScaleBytes);
}

void PagedKeys::copy_listed(const std::int32_t* positions, int count, std::uint8_t* codes,
                            float* scales) const {
  constexpr int kAhead = 16;
  for (int n = 0; n < count; ++n) {
    if (n + kAhead < count) prefetch(positions[n + kAhead]);
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
