#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_FOLDER [TARGET...]: builds the fuzz targets with the preset `asan` and runs each on
# its corpus for 12 seconds, two at a time; DOSA_TEST_SCALE=n (nightly) makes it n times as long.
# New inputs and what was found stay in BUILD_FOLDER/found.
set -euo pipefail
if [ $# -eq 0 ]; then
  sed -n '3,5s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(safetensors c_abi command_line decode differential)

(cd "$root" && cmake --preset asan -B "$build" >/dev/null)
cmake --build "$build" --target fuzzers
export here build seconds=$((12 * ${DOSA_TEST_SCALE:-1}))

run_target() {
  local name=$1 found=$build/found/$1 options=(-len_control=0 -max_len=512)
  [ "$name" = safetensors ] && options=(-max_len=4096)
  [ -e "$here/$name.dict" ] && options+=("-dict=$here/$name.dict")
  mkdir -p "$found"
  cd "$found"
  mkdir -p inputs
  # A thread of OpenMP that spins would take the time of the target beside it.
  export OMP_WAIT_POLICY=passive
  export LSAN_OPTIONS=suppressions=$here/../leaks.txt:print_suppressions=0
  if "$build/tests/fuzz/fuzz_$name" "-max_total_time=$seconds" \
    "-artifact_prefix=$found/" "${options[@]}" "$found/inputs" "$here/corpus/$name" \
    >"$found/log" 2>&1; then
    echo "$name: $(tail -n 1 "$found/log")"
  else
    tail -n 60 "$found/log"
    echo "$name failed; what it found is in $found"
    return 1
  fi
}
export -f run_target
printf '%s\n' "${targets[@]}" | xargs -P 2 -I '{}' bash -c 'run_target {}'
