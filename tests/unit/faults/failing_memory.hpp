// SPDX-License-Identifier: Apache-2.0
//
// Operator new that fails when told to, in the program that includes this once. Only the thread
// that asked for it sees failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace dosa::test {

/// Allocations of this thread until one fails; negative: none will.
inline thread_local std::int64_t allocations_left = -1;
/// Allocations that failed in this thread.
inline thread_local std::int64_t allocations_failed = 0;

/// While it lives, the n-th allocation (from 0) of this thread and all that follow it fail, or the
/// n-th alone.
class FailAllocation {
 public:
  explicit FailAllocation(std::int64_t n) {
    allocations_failed = 0;
    allocations_left = n;
  }
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
  ~FailAllocation() { allocations_left = -1; }

  [[nodiscard]] static bool failed() { return allocations_failed > 0; }
};

inline void* allocate(std::size_t size, std::size_t alignment) {
  if (allocations_left == 0) {
    allocations_left = -1;  // one only: what cleans up after it may allocate
    ++allocations_failed;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

inline void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace dosa::test

// The array forms call these. Inlined, a delete would look to the compiler like one that does not
// match its new.
#define DOSA_REPLACED [[gnu::noinline]]
DOSA_REPLACED void* operator new(std::size_t size) {
  return dosa::test::allocate_or_throw(size, 1);
}
DOSA_REPLACED void* operator new(std::size_t size, std::align_val_t alignment) {
  return dosa::test::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
DOSA_REPLACED void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return dosa::test::allocate(size, 1);
}
DOSA_REPLACED void operator delete(void* memory) noexcept { std::free(memory); }
DOSA_REPLACED void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
DOSA_REPLACED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
DOSA_REPLACED void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#undef DOSA_REPLACED
