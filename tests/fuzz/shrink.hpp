// SPDX-License-Identifier: Apache-2.0
//
// Makes a problem that shows a fault smaller while it still shows it, and writes what is left to a
// file that `dosa verify` runs.
#pragma once

#include <functional>
#include <string>

#include "dosa/dosa.h"
#include "oracle/oracle.hpp"

namespace dosa::fuzz {

/// Rows [begin, end) of a problem left out.
[[nodiscard]] oracle::Problem without_rows(const oracle::Problem& problem, std::int64_t begin,
                                           std::int64_t end);
/// The same of keys; windows keep the keys they had.
[[nodiscard]] oracle::Problem without_keys(const oracle::Problem& problem, std::int64_t begin,
                                           std::int64_t end);
[[nodiscard]] oracle::Problem without_heads(const oracle::Problem& problem, int begin, int end);
/// Coordinates [16 begin, 16 end) left out.
[[nodiscard]] oracle::Problem without_coordinates(const oracle::Problem& problem, int begin,
                                                  int end);

/// The smallest problem found for which `shows` holds, by leaving out ever smaller runs of rows,
/// keys, heads and coordinates, and lowering K. `shows(problem)` must hold; at most `tries` calls.
[[nodiscard]] oracle::Problem shrink(oracle::Problem problem,
                                     const std::function<bool(const oracle::Problem&)>& shows,
                                     int tries);

/// Writes a trace and returns the command that runs it with these options.
/// Throws: io::Error.
std::string write_trace(const oracle::Problem& problem, const dosa_options& options,
                        const std::string& path);

}  // namespace dosa::fuzz
