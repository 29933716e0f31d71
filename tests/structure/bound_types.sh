#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bound_types.sh ROOT CC CXX: fails where an estimate, a score or a bare number can stand for a
# bound that rejects keys. Each line of misuse must not compile, and its neighbour, which is right,
# must: otherwise the misuse would fail for another reason than its types.
set -uo pipefail
cd "$1" || exit 1
cxx=$3

compiles() {
  "$cxx" -std=c++20 -Wall -Wextra -Werror -Wno-unused -Iinclude -Isrc -fsyntax-only -x c++ - \
    <<<"#include \"screen/screen.hpp\"
#include \"refine/score.hpp\"
using namespace dosa;
void use(const plan::ScreenOperand& o, const plan::AllHeadsOperand& a, const plan::QueryPack& q,
         const plan::KeyTile& t, std::uint16_t* p, float* f, UpperBound up, LowerBound low,
         Score score, Estimate estimate) { $1 }" 2>/dev/null
}

failures=0
# check RIGHT WRONG...: the first must compile, the others must not.
check() {
  local right=$1 wrong
  shift
  compiles "$right" || { echo "should compile: $right"; failures=$((failures + 1)); }
  for wrong in "$@"; do
    checked=$((checked + 1))
    if compiles "$wrong"; then
      echo "should not compile: $wrong"
      failures=$((failures + 1))
    fi
  done
}

checked=0
check 'bool r = rejects(up, low);' \
  'bool r = rejects(estimate, low);' \
  'bool r = rejects(up, estimate);' \
  'bool r = rejects(score, low);' \
  'bool r = rejects(up, score);' \
  'bool r = rejects(low, up);' \
  'bool r = rejects(1.0F, low);' \
  'bool r = rejects(up, 1.0F);'
check 'UpperBound u(1.0F);' 'UpperBound u = 1.0F;' 'UpperBound u(estimate);' \
  'UpperBound u(score);' 'UpperBound u(low);' 'UpperBound u = estimate;'
check 'LowerBound l(1.0F);' 'LowerBound l = 1.0F;' 'LowerBound l(estimate);' \
  'LowerBound l(score);' 'LowerBound l(up);'
check 'screen::screen_tile(o, t, low, f);' 'screen::screen_tile(o, t, estimate, f);' \
  'screen::screen_tile(o, t, 1.0F, f);' 'screen::screen_tile(o, t, up, f);'
check 'refine::refine_keys(q, t, a, low, p, 1, p, f, f);' \
  'refine::refine_keys(q, t, a, estimate, p, 1, p, f, f);' \
  'refine::refine_keys(q, t, a, 1.0F, p, 1, p, f, f);'
check 'LowerBound l = screen::guarded_threshold(1.0F);' \
  'LowerBound l = screen::guarded_threshold(estimate);'
check 'UpperBound u = screen::certified_bound(1.0F);' \
  'UpperBound u = screen::certified_bound(estimate);' 'float b = screen::certified_bound(1.0F);'

echo "$checked ways to misuse a bound, $failures failures"
[ "$failures" -eq 0 ]
