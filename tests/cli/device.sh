#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device.sh COMMAND DATA_FOLDER [PEER]: the commands with --backend cuda. Every mode writes the same
# bytes, `verify` finds nothing, inputs that no order of summing changes give the ids of the CPU
# engine, and `bench` counts every pair. Exit status 77: no CUDA in this build, or no sm_90 device.
set -uo pipefail
command=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

make_input() { "$command" gen "${@:2}" -o "$folder/$1.in" || exit 1; }
make_input real real --queries 70 --keys 30001 --windows causal
make_input wide real --queries 65 --keys 20000 --heads 64
make_input int int --queries 80 --keys 40000 --windows causal
make_input model glm52 --rows 8 --queries 64 --keys 65536

if ! refusal=$("$command" run "$folder/real.in" --backend cuda --mode full 2>&1 >/dev/null); then
  case $refusal in
    *'--backend: found '*) echo "skipped: $refusal"; exit 77 ;;
  esac
  echo "$refusal"
  exit 1
fi

failures=0
checks=0
expect() { # WHAT COMMAND...: the command succeeds
  checks=$((checks + 1))
  if ! "${@:2}"; then
    echo "FAILED: $1"
    failures=$((failures + 1))
  fi
}

for input in real wide int model; do
  for topk in 50 2048; do
    [ $topk = 50 ] && [ $input = wide ] && continue
    first=
    for mode in 'base 0' 'full 0' 'auto 0' 'dosa 6' 'dosa 14' 'dosa 22'; do
      read -r name heads <<<"$mode"
      out=$folder/$input.$name.$heads
      expect "run $input $mode" "$command" run "$folder/$input.in" --backend cuda --scores \
        -k $topk --mode "$name" --heads "$heads" --out "$out" >/dev/null
      [ -n "$first" ] || first=$out
      expect "$input $mode, K = $topk: the bytes of base" cmp "$first" "$out"
    done
    report=$("$command" verify "$folder/$input.in" --backend cuda -k $topk --mode dosa --json)
    expect "verify $input, K = $topk" test $? -eq 0
    expect "verify $input says so" grep -q '"identical": true' <<<"$report"
    expect "verify $input rejects" grep -qE '"rejected": [1-9]' <<<"$report"
  done
done

# Ids lie at the end of a result without scores.
"$command" run "$folder/int.in" --backend cuda -k 300 --out "$folder/ids.cuda" >/dev/null
"$command" run "$folder/int.in" --backend cpu -k 300 --out "$folder/ids.cpu" >/dev/null
expect 'the ids of the CPU engine' cmp <(tail -c $((80 * 300 * 4)) "$folder/ids.cuda") \
  <(tail -c $((80 * 300 * 4)) "$folder/ids.cpu")

expect 'bench' "$command" bench "$folder/model.in" --backend cuda --rows 64,32 --keys 65536 \
  --heads 6 --repeat 3 --json "$folder/bench.json" >/dev/null
expect 'bench: two cells' test "$(grep -c '"best_every_key"' "$folder/bench.json")" -eq 2
expect 'bench: four modes each' test "$(grep -c '"wall_s"' "$folder/bench.json")" -eq 8

# Somebody else's library; by default the one that was built for this test, if it was.
peer=${3:-$(dirname "$command")/tests/libbench_device_peer.so}
if [ -f "$peer" ]; then
  expect 'bench with a peer' "$command" bench "$folder/model.in" --backend cuda --rows 64 \
    --keys 65536 --modes full -k 100 --repeat 2 --peer "other=$peer" \
    --json "$folder/peer.json" >/dev/null
  # It leaves out one id of 100.
  expect 'ids in common' grep -qE '"ids_in_common": 0\.99' "$folder/peer.json"
fi
echo "$checks checks, $failures failures"
[ "$failures" -eq 0 ]
