// SPDX-License-Identifier: Apache-2.0
// Threads of a call: OpenMP's functions where there is OpenMP, one thread where there is
// none, and a barrier for steps of microseconds.
#ifndef DOSA_ENGINE_THREADS_HPP
#define DOSA_ENGINE_THREADS_HPP

#include <algorithm>
#include <atomic>
#include <cstdint>

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

/// A barrier that waits without a turn of the scheduler where all threads run, and lets go of its
/// core soon where they do not: OpenMP's own may spin through a whole time slice that the thread it
/// waits for would need, and a step has a dozen of them.
class Barrier {
 public:
  /// Returns when all `members` threads have called it.
  void wait(int members) {
    constexpr int kSpins = 2000;  // some ten microseconds
    const std::uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
      return;
    }
    for (int spin = 0; spin < kSpins; ++spin) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      __builtin_ia32_pause();
    }
    phase_.wait(phase, std::memory_order_acquire);
  }

 private:
  std::atomic<std::uint32_t> phase_{0};
  std::atomic<int> arrived_{0};
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_THREADS_HPP
