// SPDX-License-Identifier: Apache-2.0
// Inputs of the measurements: files and made ones, cut to their last rows and keys.
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <string>
#include <vector>

#include "study_input.hpp"

namespace dosa::cli {

inline constexpr std::int64_t kBenchKeys = 131072;  // of made inputs where no length is asked for

/// Shape of made inputs that do not name theirs: neighbouring rows, causal windows.
struct BenchShape {
  std::int64_t rows, keys;
};

/// As study_sources(), but neighbouring rows.  Throws: Failure where a specification is unreadable.
[[nodiscard]] std::vector<StudySource> bench_sources(const std::vector<std::string>& files,
                                                     const std::vector<std::string>& specs,
                                                     BenchShape shape, std::int32_t topk);

}  // namespace dosa::cli
