#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compute-sanitizer over a small grid of all device kernels: prefill, decode, paged copies, merge,
# mma.
#
# Usage: scripts/sanitize_device.sh [BUILD] [TOOL...]
#   BUILD  a build folder of preset cuda, or one with the test programs in it (build/cuda)
#   TOOL   memcheck, racecheck, initcheck, synccheck (all four)
# DOSA_SANITIZE_SECONDS: limit of one run (600). DOSA_SANITIZE_JOBS: runs at a time (4).
# Exit code 1: something was reported, failed or ran out of time. 77: no compute-sanitizer.
set -uo pipefail

build=${1:-build/cuda}
shift || true
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$sanitizer" ]; then
  echo "skipped: no compute-sanitizer"
  exit 77
fi
[ -d "$build/tests" ] && build=$build/tests
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Program and its arguments: parts with little data that reach every kernel.
grid=(
  "test_gpu_topk tiny"
  "test_gpu_topk tiny mma_f16"
  "test_gpu_decode order"
  "test_gpu_decode_api copies"
  "test_gpu_merge ties"
)

# One tool on one program; the last line of its log says what came out.
check() {
  local tool=$1 log=$2 began=$SECONDS
  shift 2
  local options=()
  [ "$tool" = memcheck ] && options=(--leak-check full)
  timeout "${DOSA_SANITIZE_SECONDS:-600}" "$sanitizer" --tool "$tool" "${options[@]}" \
    --error-exitcode 9 "$@" >"$log" 2>&1
  local status=$? summary
  summary=$(grep -E "ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY" "$log" |
    sed 's/=* *//' | paste -sd' ')
  echo "$tool: $(basename "$1") ${*:2}: exit $status in $((SECONDS - began)) s; $summary" >>"$log"
  return $status
}

failed=0
running=0
for tool in "${tools[@]}"; do
  for at in "${!grid[@]}"; do
    read -ra words <<<"${grid[$at]}"
    if [ "$running" -ge "${DOSA_SANITIZE_JOBS:-4}" ]; then
      wait -n || failed=1
      running=$((running - 1))
    fi
    check "$tool" "$logs/$tool-$at" "$build/${words[0]}" "${words[@]:1}" &
    running=$((running + 1))
  done
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
for log in "$logs"/*; do
  grep -q "exit 0 in" <(tail -n 1 "$log") || grep -E "^=+ " "$log" | head -n 12
  tail -n 1 "$log"
done
exit $failed
