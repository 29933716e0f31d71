#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lengths.sh ROOT: prints the ten longest code files; fails where a file is longer than 500 lines or
# a line longer than 100 columns.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1
readonly max_lines=500 max_columns=100

files=$(project_files . |
  grep -E '\.(c|h|cpp|hpp|cu|cuh|py|sh|cmake)$|(^|/)(CMakeLists\.txt|Makefile)$|^\.ci/run$')
lengths=$(tr '\n' '\0' <<<"$files" | xargs -0 wc -l | grep -v ' total$' | sort -rn)
echo "The ten longest files:"
head -n 10 <<<"$lengths"

too_long=$(awk -v most=$max_lines '$1 > most' <<<"$lengths")
wide=$(tr '\n' '\0' <<<"$files" |
  LC_ALL=C.UTF-8 xargs -0 grep -nHE "^.{$((max_columns + 1)),}" | cut -c1-120)
if [ -n "$too_long" ]; then printf 'Longer than %d lines:\n%s\n' $max_lines "$too_long"; fi
if [ -n "$wide" ]; then printf 'Wider than %d columns:\n%s\n' $max_columns "$wide"; fi
[ -z "$too_long$wide" ]
