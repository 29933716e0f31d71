#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# words.sh ROOT: fails where a file holds a note to self, a merge mark, a path of one machine, or no
# licence line.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1

# One letter of each is bracketed, so that this file does not find itself.
patterns=(
  '\bTOD[O]\b' '\bFIXM[E]\b' '\bXX[X]\b' '\bHAC[K]\b'
  '^<<<<<<[<] ' '^>>>>>>[>] '
  '/wor[k]/' '/far[m]/' '/hom[e]/[a-z]' '/tm[p]/brief' '\bsub-?agent[s]?\b' '\bCE[O]\b'
)
expression=$(IFS='|'; echo "${patterns[*]}")
found=$(project_files . | grep -v '^LICENSE$' | tr '\n' '\0' |
  xargs -0 grep -nHIE "$expression" | cut -c1-140)
unlicensed=$(project_files . |
  grep -E '\.(c|h|cpp|hpp|cu|cuh|py|sh|cmake)$|(^|/)CMakeLists\.txt$' | tr '\n' '\0' |
  xargs -0 awk 'FNR <= 3 && /SPDX-License-Identifier: Apache-2\.0/ {seen[FILENAME]}
                FNR == 1 {all[FILENAME]}
                END {for (file in all) if (!(file in seen)) print file}')

if [ -n "$found" ]; then printf 'Words that do not belong here:\n%s\n' "$found"; fi
if [ -n "$unlicensed" ]; then printf 'No SPDX line at the top:\n%s\n' "$unlicensed"; fi
[ -z "$found$unlicensed" ]
