#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh ROOT BUILD_FOLDER: fails where clang-tidy finds something in src or cli. It takes minutes,
# so it is a step of CI and no test. The compile commands of BUILD_FOLDER should be clang's (preset
# asan); the files need not be built.
set -uo pipefail
cd "$1" || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run-clang-tidy-14 -p "$2" -quiet "$PWD/(src|cli)/.*\.cpp$" >"$log" 2>/dev/null
status=$?
grep -A 3 -E '(error|warning):' "$log"
files=$(grep -c '^clang-tidy-14 ' "$log")
echo "clang-tidy looked at $files files and ended with $status"
[ "$status" -eq 0 ] && [ "$files" -gt 50 ]
