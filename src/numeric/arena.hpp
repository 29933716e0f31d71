// SPDX-License-Identifier: Apache-2.0
// Hands out pieces of the caller's workspace. The same placement code runs twice: without memory to
// learn the size, and with memory to get the pointers, so the two cannot disagree.
#ifndef DOSA_NUMERIC_ARENA_HPP
#define DOSA_NUMERIC_ARENA_HPP

#include <cstddef>
#include <cstdint>

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
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + begin);
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

/// `workspace` moved up to the arena's alignment; callers reserve kAlignment - 1 bytes for it.
inline void* align_workspace(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  const std::uintptr_t aligned = (address + Arena::kAlignment - 1) & ~(Arena::kAlignment - 1);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace dosa

#endif  // DOSA_NUMERIC_ARENA_HPP
