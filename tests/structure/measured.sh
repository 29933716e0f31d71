#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# measured.sh ROOT: fails where a measured time of the README is not in the JSON that its line
# names, and where the check itself would not notice.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 1
python3 "$here/measured.py" . || exit 1

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
ln -s "$PWD/bench" "$copy/bench"
refused() { # what was changed
  if python3 "$here/measured.py" "$copy" >/dev/null; then
    echo "measured.py does not notice $1"
    exit 1
  fi
}
sed -E '/^## Measured/,/^## /s/\| ([0-9.]+) (ms|s)/| 9\1 \2/' README.md >"$copy/README.md"
refused "another number"
sed -E '/^## Measured/,/^## /s/\]\([^)]*\.json\)//' README.md >"$copy/README.md"
refused "a number without a source"
