#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT CC CXX: fails where a header does not compile alone. Public C headers are compiled
# as C99 too; a header that is included once per instruction set (*-inl.hpp) after Highway's own; a
# header that includes CUDA's, or that a .cu file of the same name implements, by nvcc, where there
# is one.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1
export CC=$2 CXX=$3
scratch=$(mktemp -d)
export scratch
trap 'rm -rf "$scratch"' EXIT

compile_alone() {
  local header=$1 source="#include \"$1\""
  # Only the build of the Python package has nanobind.
  if grep -q '^#include <nanobind/' "$header"; then return 0; fi
  # Those of the device's commands and tests include CUDA's by way of each other.
  if [[ $header == */device/* || $header == tests/gpu/* ]] && ! command -v nvcc >/dev/null; then
    return 0
  fi
  local flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -Iinclude -Isrc -Icli -Itests)
  if [ -e "${header%.hpp}.cu" ] || grep -q '^#include <cuda' "$header"; then
    command -v nvcc >/dev/null || return 0
    local unit=$scratch/${header//\//_}
    echo "$source" >"$unit.cu"
    nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. -Iinclude -Isrc -Itests \
      -c -o "$unit.o" "$unit.cu" && return 0
    echo "$header does not compile alone with nvcc"
    return 1
  fi
  if [[ $header == *-inl.hpp ]]; then source="#include <hwy/highway.h>"$'\n'$source; fi
  if [[ $header == include/*.h ]] && ! "$CC" -std=c99 "${flags[@]}" -x c - <<<"$source"; then
    echo "$header does not compile alone as C"
    return 1
  fi
  if ! "$CXX" -std=c++20 -fopenmp "${flags[@]}" -x c++ - <<<"$source"; then
    echo "$header does not compile alone"
    return 1
  fi
}
export -f compile_alone

headers=$(code_files . | grep -E '\.(h|hpp)$')
tr '\n' '\0' <<<"$headers" | xargs -0 -P 2 -n 1 bash -c 'compile_alone "$1"' compile_alone || exit 1
echo "$(wc -l <<<"$headers") headers compile alone"
