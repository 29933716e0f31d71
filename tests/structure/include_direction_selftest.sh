#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that include_direction.sh finds what it is there to find: in a scratch tree each forbidden
# edge must make it fail, and each allowed one must not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

layers=(src/numeric src/plan src/screen src/refine src/select src/engine src/gpu src/io
        cli tests/unit tests/oracle include/dosa)
for folder in "${layers[@]}"; do
  mkdir -p "$tree/$folder"
  echo '#pragma once' >"$tree/$folder/a.hpp"
done

echo '#pragma once' >"$tree/src/base.hpp"

cases=0
# expect VERDICT FILE LINE: with FILE holding LINE, the check passes or fails.
expect() {
  local verdict=$1 file=$tree/$2 line=$3 found=fails
  echo "$line" >"$file"
  if bash "$here/include_direction.sh" "$tree" >"$tree/log" 2>&1; then found=passes; fi
  rm "$file"
  cases=$((cases + 1))
  if [ "$found" != "$verdict" ]; then
    echo "$2 with $line: the check $found, expected: it $verdict"
    cat "$tree/log"
    exit 1
  fi
}

steps=(numeric plan screen refine select engine)
for ((low = 0; low < ${#steps[@]}; ++low)); do
  for ((high = low + 1; high < ${#steps[@]}; ++high)); do
    expect fails "src/${steps[low]}/b.cpp" "#include \"${steps[high]}/a.hpp\""
    expect passes "src/${steps[high]}/b.cpp" "#include \"${steps[low]}/a.hpp\""
  done
  expect fails src/gpu/b.cu "#include \"${steps[low]/numeric/plan}/a.hpp\""
  expect fails src/io/b.cpp "#include \"${steps[low]/numeric/plan}/a.hpp\""
  expect fails "src/${steps[low]}/b.cpp" '#include "io/a.hpp"'
  expect passes src/c_api.cpp "#include \"${steps[low]}/a.hpp\""
done
expect fails src/plan/b.cpp '#include "../screen/a.hpp"'
expect fails src/plan/b.cpp '#  include <screen/a.hpp>'
expect fails src/plan/b.cpp '#include "screen/not_there_yet.hpp"'
expect fails src/plan/b.cpp '#define HWY_TARGET_INCLUDE "screen/a.hpp"'
expect fails src/engine/b.cpp '#include "../../cli/a.hpp"'
expect fails src/error.hpp '#include "numeric/a.hpp"'
expect passes src/error.hpp '#include "dosa/a.hpp"'
expect fails src/numeric/b.cu '#include "gpu/a.hpp"'
expect fails include/dosa/b.hpp '#include "numeric/a.hpp"'
expect fails tests/oracle/b.cpp '#include "screen/a.hpp"'
expect fails src/io/b.cpp '#include "../../tests/oracle/a.hpp"'
expect passes src/plan/b.cpp '#include "a.hpp"'
expect passes src/plan/b.cpp '#include "base.hpp"'
expect passes src/plan/b.cpp '#include "dosa/a.hpp"'
expect passes src/plan/b.cpp '#include <vector>'
expect passes src/screen/b.cu '#include "gpu/a.hpp"'
expect passes src/io/b.cpp '#include "numeric/a.hpp"'
expect passes cli/b.cpp '#include "io/a.hpp"'
expect passes tests/unit/b.cpp '#include "engine/a.hpp"'
echo "$cases cases judged as expected"
