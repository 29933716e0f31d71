// SPDX-License-Identifier: Apache-2.0
//
// Running the library on another instruction set than the best one of the machine.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dosa/dosa.h"

namespace dosa::test {

/// While it lives, calls use the instruction set of this bit, or the best below it that the library
/// was compiled for. No call may be running when one is made or goes.
class UseInstructionSet {
 public:
  explicit UseInstructionSet(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  UseInstructionSet(const UseInstructionSet&) = delete;
  UseInstructionSet& operator=(const UseInstructionSet&) = delete;
  ~UseInstructionSet() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// Those of the library that this machine has, the scalar references last.
inline const std::vector<std::int64_t>& instruction_sets() {
  static const std::vector<std::int64_t> kSets = [] {
    std::vector<std::int64_t> sets;
    std::string last;
    const std::int64_t supported = hwy::SupportedTargets();
    for (int bit = 0; bit < 63; ++bit) {  // Highway's better targets have lower bits
      const std::int64_t target = std::int64_t{1} << bit;
      if ((supported & target) == 0) continue;
      const UseInstructionSet use(target);
      if (dosa_simd_target() == last) continue;
      last = dosa_simd_target();
      sets.push_back(target);
    }
    return sets;
  }();
  return kSets;
}

}  // namespace dosa::test
