// SPDX-License-Identifier: Apache-2.0
// Hands out pieces of the caller's workspace. The same placement code runs twice: without memory to
// learn the size, and with memory to get the pointers, so the two cannot disagree.
#ifndef DOSA_NUMERIC_ARENA_HPP
#define DOSA_NUMERIC_ARENA_HPP

#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DOSA_RED_ZONES 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(DOSA_RED_ZONES)
#undef DOSA_RED_ZONES
#define DOSA_RED_ZONES 1
#include <sanitizer/asan_interface.h>
#endif

namespace dosa {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 vector

  /// Counts only: every piece is null.
  Arena() = default;
  /// `base` must be aligned to kAlignment.
  explicit Arena(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::size_t count) {
    const std::size_t begin = used_;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
    const std::size_t bytes = count * sizeof(T);
    used_ += (bytes + kRedZone + kAlignment - 1) / kAlignment * kAlignment;
    if (base_ == nullptr) return nullptr;
#ifdef DOSA_RED_ZONES
    ASAN_UNPOISON_MEMORY_REGION(base_ + begin, bytes);
    ASAN_POISON_MEMORY_REGION(base_ + begin + bytes, used_ - begin - bytes);
#endif
    return reinterpret_cast<T*>(base_ + begin);
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  // The address sanitizer sees one piece run into the next only where there is something between.
#ifdef DOSA_RED_ZONES
  static constexpr std::size_t kRedZone = kAlignment;
#else
  static constexpr std::size_t kRedZone = 0;
#endif
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

/// Gives the workspace back to its owner, without red zones, when it goes.
class WorkspaceLoan {
 public:
#ifdef DOSA_RED_ZONES
  WorkspaceLoan(void* workspace, std::size_t bytes) : workspace_(workspace), bytes_(bytes) {}
  ~WorkspaceLoan() { ASAN_UNPOISON_MEMORY_REGION(workspace_, bytes_); }
#else
  WorkspaceLoan(void* /*workspace*/, std::size_t /*bytes*/) {}
  ~WorkspaceLoan() = default;
#endif
  WorkspaceLoan(const WorkspaceLoan&) = delete;
  WorkspaceLoan& operator=(const WorkspaceLoan&) = delete;

#ifdef DOSA_RED_ZONES
 private:
  void* workspace_;
  std::size_t bytes_;
#endif
};

/// `workspace` moved up to the arena's alignment; callers reserve kAlignment - 1 bytes for it.
inline void* align_workspace(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  const std::uintptr_t aligned = (address + Arena::kAlignment - 1) & ~(Arena::kAlignment - 1);
  return static_cast<std::byte*>(workspace) + (aligned - address);
}

}  // namespace dosa

#endif  // DOSA_NUMERIC_ARENA_HPP
