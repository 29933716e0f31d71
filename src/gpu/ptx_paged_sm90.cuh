// SPDX-License-Identifier: Apache-2.0
// The PTX instructions of sm_90a that only the decode kernels use, one per function.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gpu/ptx_sm90.cuh"

namespace dosa::gpu {

/// cp.async.bulk.tensor.3d: a box of a tensor map into shared memory, counted by `barrier`.
__device__ __forceinline__ void tensor_load(void* destination, const CUtensorMap* map, int x, int y,
                                            int z, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// griddepcontrol.wait: the grids that this one was launched after are complete and visible.
__device__ __forceinline__ void grid_dependency_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// griddepcontrol.launch_dependents: the next grid may start as soon as all CTAs have said so.
__device__ __forceinline__ void grid_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// barrier.cta.red.or.pred: does any of the `threads` threads at this named barrier say yes?
__device__ __forceinline__ bool named_barrier_or(int name, int threads, bool value) {
  uint32_t any = 0;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "barrier.cta.red.or.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(name), "r"(threads), "r"(value ? 1u : 0u)
      : "memory");
  return any != 0;
}

/// red.release.gpu.global.add: what this thread knows of is visible to whoever acquires the sum.
__device__ __forceinline__ void red_release(uint32_t* address, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// ld.acquire.gpu.global
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
  uint32_t value = 0;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

/// barrier.cluster.arrive.release, then barrier.cluster.wait.acquire
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// %cluster_ctarank
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

/// wgmma.mma_async m64n64k32 f32 += e4m3 * e4m3, both operands in shared memory.
/// With `accumulate` 0 the accumulators are overwritten.
__device__ __forceinline__ void wgmma_k32(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  // clang-format off
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(accumulate));
  // clang-format on
}

/// wgmma.mma_async m64n32k32 f32 += e4m3 * e4m3, both operands in shared memory.
/// With `accumulate` 0 the accumulators are overwritten.
__device__ __forceinline__ void wgmma_k32(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
  // clang-format off
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(accumulate));
  // clang-format on
}

}  // namespace dosa::gpu
