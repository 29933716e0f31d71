#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh ROOT: fails where clang-format 14 would change a file.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1
files=$(code_files .) || exit 1
tr '\n' '\0' <<<"$files" | xargs -0 -P 2 -n 16 clang-format-14 --dry-run -Werror || exit 1
echo "$(wc -l <<<"$files") files are formatted"
