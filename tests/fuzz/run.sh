#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_FOLDER [libFuzzer options]: builds the fuzz target with clang 14 and runs it on its
# corpus, 30 seconds unless the options say otherwise. New inputs stay in BUILD_FOLDER.
set -euo pipefail
if [ $# -eq 0 ]; then
  sed -n '3,4s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
shift

sources=()
for name in dtype error header mapped_file safetensors trace; do
  sources+=("$root/src/io/$name.cpp")
done
clang++-14 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$root/src" -I"$root/include" "$here/safetensors.cpp" "${sources[@]}" -o "$build/safetensors"

mkdir -p "$build/found"
cd "$build"
./safetensors -max_total_time=30 -max_len=4096 -dict="$here/safetensors.dict" "$@" \
  found "$here/corpus"
