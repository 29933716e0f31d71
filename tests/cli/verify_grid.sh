#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify_grid.sh COMMAND DATA_FOLDER: `dosa verify` on a real trace over a grid of options in which
# every value of each option meets several of the others. Every rejection is audited against the
# exact score, and every answer compared with that of every key scored.
set -uo pipefail
command=$1
trace=$2/code_small.safetensors

# mode threshold heads retain projection allowance aggregate statistics K
grid='
auto   rising 0  uncertainty yes best       support  hard   64
full   rising 0  uncertainty no  triangle   none     seeds  500
screen rising 4  strength    yes grouped:2  all      hard   64
screen fixed  14 uncertainty yes joint      absolute seeds  500
dosa   rising 4  uncertainty yes joint      none     random 500
dosa   fixed  4  strength    no  triangle   support  seeds  64
dosa   rising 14 strength    yes grouped:4  support  random 500
dosa   fixed  14 uncertainty no  grouped:8  two      hard   64
dosa   fixed  30 strength    no  best       all      seeds  500
dosa   rising 1  uncertainty yes best       absolute random 64
'
runs=0
failures=0
while read -r mode threshold heads retain projection allowance aggregate statistics topk; do
  [ -n "$mode" ] || continue
  arguments=(--mode "$mode" --threshold "$threshold" --heads "$heads" --retain "$retain"
    --allowance "${allowance%:*}" --aggregate "$aggregate" --statistics "$statistics" -k "$topk")
  [ "$projection" = yes ] || arguments+=(--no-projection)
  [ "$allowance" = "${allowance#*:}" ] || arguments+=(--allowance-groups "${allowance#*:}")
  [ $((runs % 3)) -eq 0 ] && arguments+=(--forced-first 4 --forced-last 32)
  runs=$((runs + 1))
  report=$("$command" verify "$trace" --json "${arguments[@]}")
  status=$?
  if [ $status -ne 0 ] || ! grep -q '"identical": true' <<<"$report" ||
    ! grep -q '"violations": 0' <<<"$report"; then
    printf 'status %d: dosa verify %s\n%s\n' "$status" "${arguments[*]}" "$report"
    failures=$((failures + 1))
  fi
  # A grid of runs that reject nothing would audit nothing.
  rejected=$(sed -nE 's/^ *"rejected": ([0-9]+),$/\1/p' <<<"$report")
  if [ "${rejected:-0}" -eq 0 ]; then
    echo "nothing rejected: dosa verify ${arguments[*]}"
    failures=$((failures + 1))
  fi
done <<<"$grid"
echo "$runs runs, $failures failures"
[ "$runs" -gt 0 ] && [ "$failures" -eq 0 ]
