#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cases.sh ROOT: fails where docs/cases.md lacks an entry of the collection of known failures, or
# has one twice, or names a test that does not exist; where a Case test is named nowhere; and where
# an entry has neither a test nor a reason, among them on each engine of the device.
set -uo pipefail
cd "$1" || exit 1
document=docs/cases.md
entries="1 2 3 5 7 8 9 10 11 12 13 14 17 18 19 21 22 24 26 27 32 33 34 35 36 37 39 40 41 43 44 45 46
47 48 51 52 53 58 59 60 62 63 64 65 66 67 68 71 72 73 74 77 78 80 81 82 85 86 87 88 89"
failures=0
fail() {
  echo "$1"
  failures=$((failures + 1))
}

expected=$(tr ' ' '\n' <<<"$entries" | sort -n)
# compare TITLE ENTRIES: one message for each entry that is missing, unknown or there twice.
compare() {
  local line
  while read -r line; do
    [ -n "$line" ] && fail "$document, $1: entry ${line#[<>] } is $([ "${line:0:1}" = "<" ] &&
      echo "missing" || echo "unknown or there twice")"
  done < <(diff <(echo "$expected") <(echo "$2") | grep '^[<>]')
}
device=$(sed -n '/^## On the device/,/^## /p' "$document" | grep -E '^\| [0-9]')
host=$(sed '/^## On the device/,$d' "$document" | grep -E '^\| \[?[0-9]')
rows=$(sed -E 's/^\| \[?([0-9]+)\]?[( |].*/\1/' <<<"$host" | sort -n)
compare "host" "$rows"
compare "device" "$(cut -d '|' -f 2 <<<"$device" | tr ' ' '\n' | grep . | sort -n)"

# What exists: "Suite.Name" of GoogleTest, "file.py::name" of pytest, "gpu.name" of ctest and its
# parts, "gpu.name part".
existing=$({
  grep -rhoE '^(TEST|TEST_F|TEST_P)\([A-Za-z0-9]+, [A-Za-z0-9]+\)' tests/unit tests/property |
    sed -E 's/^[A-Z_]+\(([A-Za-z0-9]+), ([A-Za-z0-9]+)\)/\1.\2/'
  grep -rnoE '^ *def test_[a-z0-9_]+' tests/python --include='test_*.py' |
    sed -E 's|^.*/(test_[a-z_]+\.py):[0-9]+: *def (test_[a-z0-9_]+)|\1::\2|'
  find tests/gpu -name '*.cu' | sed -E 's|.*/([a-z_]+)\.cu|gpu.\1|'
  grep -oE '\{"[a-z]+", check_' tests/gpu/*.cu |
    sed -E 's|^tests/gpu/([a-z_]+)\.cu:\{"([a-z]+)".*|gpu.\1 \2|'
} | sort -u)

named=$(grep '^| ' "$document" |
  grep -oE '`([A-Z][A-Za-z0-9]+\.[A-Za-z0-9]+|gpu\.[a-z_ ]+|test_[a-z_]+\.py::test_[a-z0-9_]+)`' |
  tr -d '`' | sort -u)
while read -r test; do
  grep -qxF "$test" <<<"$existing" || fail "$document: there is no test $test"
done <<<"$named"
while read -r test; do
  grep -qxF "$test" <<<"$named" || fail "$document does not name $test"
done < <(grep -E '^Case[0-9]' <<<"$existing")

# Every row but those that say why not has a test.
while IFS='|' read -r _ entry _ tests _ remarks _; do
  [ -n "${tests// /}" ] || [[ $remarks == *"no test:"* ]] ||
    fail "$document: entry$entry has neither a test nor a reason"
done <<<"$host"
while IFS='|' read -r _ entry prefill decode python _; do
  for cell in "$prefill" "$decode" "$python"; do
    [[ $cell == *\`* || $cell == *"no test: "* || $cell == " same call " ]] ||
      fail "$document: entries$entry have neither a test nor a reason in:$cell"
  done
done <<<"$device"

echo "$(wc -l <<<"$rows") entries, $(wc -l <<<"$named") tests, $failures failures"
[ "$failures" -eq 0 ]
