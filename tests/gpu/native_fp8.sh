#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# native_fp8.sh OBJECT...: fails where an object of the mma_fp8 kernels lacks, for sm_89 or sm_120,
# the native FP8 product, or holds another matrix product. Exit status 77: no cuobjdump.
set -uo pipefail

if ! command -v cuobjdump >/dev/null; then
  echo "skipped: no cuobjdump"
  exit 77
fi
failures=0
for object in "$@"; do
  for card in sm_89 sm_120; do
    code=$(cuobjdump --dump-sass -arch "$card" "$object" 2>/dev/null)
    native=$(grep -c 'QMMA\.16832\.F32\.E4M3\.E4M3' <<<"$code")
    other=$(grep -cE '[HIDO]MMA\.' <<<"$code")
    echo "$(basename "$object") $card: $native native FP8 products, $other others"
    if [ "$native" -eq 0 ] || [ "$other" -ne 0 ]; then failures=$((failures + 1)); fi
  done
done
[ "$failures" -eq 0 ]
