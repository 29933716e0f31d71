// SPDX-License-Identifier: Apache-2.0
// Copies into shared memory and barriers that every card from sm_80 on has.
#pragma once

#include <cstdint>

namespace dosa::gpu {

/// Shared-window address of a shared-memory pointer, as PTX wants it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// cp.async.cg.shared.global, 16 bytes; with `valid` false the bytes are zeros.
__device__ __forceinline__ void copy_async_16(uint32_t destination, const void* source,
                                              bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// cp.async.ca.shared.global, 4 bytes; with `valid` false the bytes are zeros.
__device__ __forceinline__ void copy_async_4(uint32_t destination, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source),
               "r"(valid ? 4 : 0)
               : "memory");
}

/// cp.async.commit_group
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// cp.async.wait_group: all but the newest `kPending` groups are complete.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// bar.sync of `threads` threads on a named barrier (0 is __syncthreads).
__device__ __forceinline__ void named_barrier_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

}  // namespace dosa::gpu
