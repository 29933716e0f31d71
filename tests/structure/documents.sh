#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh ROOT CC: fails where a relative link in a Markdown file leads nowhere, where the C
# example of the README does not compile, or where two files state different versions.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
cd "$1" || exit 1
failures=0
fail() {
  echo "$1"
  failures=$((failures + 1))
}

links=0
while IFS=: read -r file target; do
  links=$((links + 1))
  [ -e "$(dirname "$file")/$target" ] || fail "$file: there is no $target"
done < <(project_files . | grep '\.md$' | tr '\n' '\0' | xargs -0 grep -oHE '\]\([^)]+\)' |
  sed -E 's/\]\(([^)#]*)(#[^)]*)?\)$/\1/' | grep -vE ':(https?:.*)?$')

example=$(awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md)
[ -n "$example" ] || fail "README.md has no C example"
"$2" -std=c99 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c - <<<"$example" ||
  fail "the C example of README.md does not compile"

version=$(sed -nE 's/^#define DOSA_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$/\2/p' include/dosa/dosa.h |
  paste -sd.)
grep -q "^version: $version\$" CITATION.cff || fail "CITATION.cff does not state version $version"
grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section on version $version"

echo "$links links, version $version, $failures failures"
[ "$failures" -eq 0 ]
