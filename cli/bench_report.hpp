// SPDX-License-Identifier: Apache-2.0
// What `dosa bench` prints and writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_cell.hpp"

namespace dosa::cli {

/// Machine, compiler, version and what decides: where the numbers come from.
[[nodiscard]] nlohmann::ordered_json bench_header(const bench::CellOptions& options,
                                                  const std::string& openblas);
/// The header as lines, and the head of the table.
[[nodiscard]] std::string bench_head(const nlohmann::ordered_json& header);
/// One line per mode.
[[nodiscard]] std::string bench_lines(const bench::Cell& cell, bool cpu);
/// What the run as a whole has to show: the worst of `auto`, the least of the ceiling reached.
[[nodiscard]] std::string bench_summary(const std::vector<bench::Cell>& cells, bool cpu);
/// Everything, all samples included.
[[nodiscard]] nlohmann::ordered_json bench_json(nlohmann::ordered_json header,
                                                const std::vector<bench::Cell>& cells, bool cpu);

}  // namespace dosa::cli
