#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# include_direction.sh ROOT: fails where a file includes one that stands above it.
#
#   numeric <- plan <- screen <- refine <- select <- engine <- c_api <- {cli, python}
#
# Other files directly in src/ (errors) stand below all of these. Tests and benchmarks may include
# all. src/gpu and src/io know no step, only numeric; the library does not know src/io. The public
# headers in include/ may be included by all. The oracle knows none of the steps it judges.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/files.sh"
root=$(cd "$1" && pwd)

# Prints the layer of a path relative to the root; nothing for a path outside all layers.
layer_of() {
  case $1 in
    src/c_api*) echo c_api ;;
    src/*/*) local rest=${1#src/}; echo "${rest%%/*}" ;;
    src/*) echo base ;;
    include/*) echo include ;;
    tests/oracle/*) echo oracle ;;
    cli/* | python/*) echo cli ;;
    tests/* | bench/* | examples/*) echo tests ;;
  esac
}

rank_of() {
  case $1 in
    numeric) echo 10 ;; plan) echo 20 ;; screen) echo 30 ;; refine) echo 40 ;; select) echo 50 ;;
    engine) echo 60 ;; c_api) echo 70 ;; cli) echo 80 ;; tests) echo 90 ;; *) echo 0 ;;
  esac
}

# may_include FROM TO: is the edge between these layers allowed?
may_include() {
  local from=$1 to=$2
  [ "$from" = "$to" ] || [ "$to" = include ] && return 0
  case $from:$to in
    include:* | base:*) return 1 ;;
    oracle:numeric | oracle:io) return 0 ;;
    oracle:*) return 1 ;;
    tests:*) return 0 ;;
    gpu:numeric | io:numeric | gpu:base | io:base) return 0 ;;
    gpu:* | io:*) return 1 ;;
    cli:io) return 0 ;;
    *:io | *:oracle | numeric:gpu) return 1 ;;
    *:gpu) return 0 ;;
  esac
  [ "$(rank_of "$from")" -ge "$(rank_of "$to")" ]
}

# Prints the path, relative to the root, of what FILE includes as NAME; nothing for system headers.
resolve() {
  local file=$1 name=$2 base
  for base in "$(dirname "$file")" src include cli tests .; do
    if [ -f "$root/$base/$name" ]; then
      realpath -m --relative-to="$root" "$root/$base/$name"
      return
    fi
  done
  # A header that is not there yet still shows by its first folder where it is meant to be.
  if [ "${name%%/*}" != "$name" ] && [ -d "$root/src/${name%%/*}" ]; then echo "src/$name"; fi
}

# A name that Highway includes again for each instruction set counts as an include.
directive='^[[:space:]]*#[[:space:]]*(include[[:space:]]*["<]|define[[:space:]]+HWY_TARGET_INCLUDE)'
failures=0
edges=0
while IFS=: read -r file line name; do
  target=$(resolve "$file" "$name")
  [ -n "$target" ] || continue
  from=$(layer_of "$file")
  to=$(layer_of "$target")
  [ -n "$from" ] && [ -n "$to" ] || continue
  edges=$((edges + 1))
  if ! may_include "$from" "$to"; then
    echo "$file:$line: $from must not include $to ($name)"
    failures=$((failures + 1))
  fi
done < <(cd "$root" && code_files . | tr '\n' '\0' | xargs -0 -r grep -nHE "$directive" |
  sed -nE 's/^([^:]+):([0-9]+):[^"<]*["<]([^">]+)[">].*$/\1:\2:\3/p')

echo "$edges includes between the project's files, $failures against the direction"
[ "$failures" -eq 0 ]
