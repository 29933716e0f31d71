# SPDX-License-Identifier: Apache-2.0
# The device compiler. Sets dosa_cuda_sources (the engine, for Hopper alone), dosa_portable_sources
# (for every card), dosa_native_sources (for cards with an FP8 mma.sync) and dosa_probe_sources
# (which measure how a card's tensor core adds, and are no part of the library); all are empty
# without DOSA_CUDA.

set(dosa_cuda_sources "")
set(dosa_portable_sources "")
set(dosa_native_sources "")
set(dosa_probe_sources "")
if(DOSA_CUDA)
  file(GLOB dosa_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/*.cu)
  set(dosa_probe_sources ${dosa_cuda_sources})
  list(FILTER dosa_cuda_sources EXCLUDE REGEX "/gpu/probe[^/]*$")
  list(FILTER dosa_probe_sources INCLUDE REGEX "/gpu/probe[^/]*$")
  # Kernels without wgmma: the fp16 products, and what all products share.
  set(shared_steps
    plan prepare choice survivors optimistic recover_passes select select_short merge)
  list(JOIN shared_steps "|" shared_steps)
  set(dosa_portable_sources ${dosa_cuda_sources})
  list(FILTER dosa_portable_sources INCLUDE REGEX
    "_mma_f16\\.cu$|/(${shared_steps})_sm90\\.cu$|/cuda_audit_rows\\.cu$")
  set(dosa_native_sources ${dosa_cuda_sources})
  list(FILTER dosa_native_sources INCLUDE REGEX "_mma_fp8\\.cu$")
  list(REMOVE_ITEM dosa_cuda_sources ${dosa_portable_sources} ${dosa_native_sources})
  if(NOT dosa_cuda_sources)
    message(STATUS "DOSA_CUDA: there is no device source, so nothing to build")
  else()
    # 90a, not 90: wgmma and setmaxnreg exist only there. `real`: no PTX is carried along.
    set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "Device architectures")
    set(DOSA_PORTABLE_ARCHITECTURES
      80-real 86-real 89-real 90a-real 100-real 120-real 80-virtual CACHE STRING
      "Device architectures of the kernels for every card")
    set(DOSA_NATIVE_ARCHITECTURES 89-real 120-real CACHE STRING
      "Device architectures with a native FP8 mma.sync")
    enable_language(CUDA)
    # CMake 3.25 does not know the C++20 flag of nvcc 13.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    # Host code inside .cu files obeys the rule of warnings.cmake. Device code contracts a*b+c
    # unless told not to; the kernels write their fused operations out.
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off>")
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
    if(DOSA_WERROR)
      add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
    endif()
    find_package(CUDAToolkit REQUIRED)
    add_custom_target(device_programs COMMENT "Tests and benchmarks of the device engine")
  endif()
endif()
