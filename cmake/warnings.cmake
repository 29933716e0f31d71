# SPDX-License-Identifier: Apache-2.0
# Flags of every target of this project, and of no target of a project that includes it.

set(cxx_only "$<COMPILE_LANGUAGE:C,CXX>")

# -Wconversion is on everywhere, -Wsign-conversion is not: a value that silently becomes a narrower
# float or integer can break a certificate, while changes of signedness between sizes and indices
# are too many in honest code to be read.
add_compile_options("$<${cxx_only}:-Wall;-Wextra;-Wpedantic;-Wshadow>")
add_compile_options("$<${cxx_only}:-Wconversion;-Wno-sign-conversion>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Two false alarms of gcc 12: the _mm512_undefined_* idiom of its own intrinsics headers (GCC bug
  # 105593), and "text" + std::string (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    add_compile_options("$<${cxx_only}:-Wno-uninitialized;-Wno-maybe-uninitialized;-Wno-restrict>")
  endif()
endif()
if(DOSA_WERROR)
  add_compile_options("$<${cxx_only}:-Werror>")
endif()

# Score chains and bounds are defined operation by operation (docs/numerics.md). A compiler that
# fuses a multiplication and an addition of its own accord would change both; so no contraction
# here, and never -ffast-math. Instruction sets are chosen at run time: never -march=native.
add_compile_options("$<${cxx_only}:-ffp-contract=off>")

# The thread sanitizer needs clang and its libomp. gcc's libgomp synchronises by futexes that the
# sanitizer cannot see, so every parallel loop would be reported; libomp loads libarcher, which
# tells the sanitizer of forks, joins, barriers and locks (ignore_noninstrumented_modules=1 in the
# test preset leaves out libomp's own memory). Should libarcher be missing, the error is on the safe
# side: false reports. tests/tsan_canary.cpp races on purpose and must be reported.
if(DOSA_SANITIZE)
  string(REPLACE ";" "," sanitizers "${DOSA_SANITIZE}")
  add_compile_options("$<${cxx_only}:-fsanitize=${sanitizers};-fno-omit-frame-pointer>")
  add_link_options("-fsanitize=${sanitizers}")
  if(sanitizers MATCHES "undefined")
    add_compile_options("$<${cxx_only}:-fno-sanitize-recover=all>")
  endif()
endif()
