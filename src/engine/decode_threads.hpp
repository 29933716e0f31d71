// SPDX-License-Identifier: Apache-2.0
// OpenMP's functions where there is OpenMP, one thread where there is none.
#ifndef DOSA_ENGINE_DECODE_THREADS_HPP
#define DOSA_ENGINE_DECODE_THREADS_HPP

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dosa::engine {

inline constexpr int kMostCallThreads = 1024;

/// Threads of a call that asks for `wanted`; 0: the runtime's default.
inline int call_threads(int wanted) {
  if (wanted > 0) return std::min(wanted, kMostCallThreads);
#ifdef _OPENMP
  return std::min(omp_get_max_threads(), kMostCallThreads);
#else
  return 1;
#endif
}

inline int team_size() {
#ifdef _OPENMP
  return omp_get_num_threads();
#else
  return 1;
#endif
}

inline int team_member() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_THREADS_HPP
