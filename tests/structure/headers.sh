#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT CC CXX: fails where a header does not compile alone. Public C headers are compiled
# as C99 too; a header that is included once per instruction set (*-inl.hpp) after Highway's own.
# One that reaches CUDA's headers is compiled by nvcc, where there is one; one that reaches
# nanobind's is left to the build of the Python package. The compiler says what it reaches.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1
export CC=$2 CXX=$3
scratch=$(mktemp -d)
export scratch
trap 'rm -rf "$scratch"' EXIT

compile_alone() {
  local header=$1 source="#include \"$1\"" reached
  if [[ $header == *-inl.hpp ]]; then source="#include <hwy/highway.h>"$'\n'$source; fi
  local paths=(-I. -Iinclude -Isrc -Icli -Itests)
  # -MG: a header that is not there is named as well.
  reached=$("$CXX" -std=c++20 -fopenmp -M -MG "${paths[@]}" -x c++ - <<<"$source" | tr ' ' '\n')
  if grep -q '^nanobind/' <<<"$reached"; then
    echo "$header is left to the Python package"
    return 0
  fi
  if grep -qE '(^|/)cuda(_[a-z0-9_]+)?\.h$' <<<"$reached"; then
    command -v nvcc >/dev/null || { echo "$header needs nvcc"; return 0; }
    local unit=$scratch/${header//\//_}
    echo "$source" >"$unit.cu"
    nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a "${paths[@]}" -c -o "$unit.o" \
      "$unit.cu" && return 0
    echo "$header does not compile alone with nvcc"
    return 1
  fi
  local flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only "${paths[@]}")
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
echo "$(wc -l <<<"$headers") headers, but for those named above, compile alone"
