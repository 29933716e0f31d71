// SPDX-License-Identifier: Apache-2.0
// What `dosa bench --backend cuda` prints and writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/bench_cell.hpp"
#include "device/ceilings.hpp"

namespace dosa::cli {

/// Least times by arithmetic: the operations of a phase over the rate of the product ceiling.
struct Floors {
  double every_key = 0;  // all heads of all visible pairs
  double screen = 0;     // R' columns of all visible pairs; 0 where nothing is screened
  double refine = 0;     // all heads of the listed pairs
  double bytes = 0;      // inputs read once, ids written once, over the rate of the copy ceiling
};

/// All 0 where the ceiling was not measured.
[[nodiscard]] Floors floors_of(const DeviceCell& cell, const DeviceOutcome& outcome,
                               const Ceilings& ceilings);

[[nodiscard]] nlohmann::ordered_json device_header(const std::string& device, int repetitions,
                                                   const Ceilings& ceilings);
/// The header as lines, and the head of the table.
[[nodiscard]] std::string device_head(const nlohmann::ordered_json& header,
                                      const Ceilings& ceilings);
/// One line per mode.
[[nodiscard]] std::string device_lines(const DeviceCell& cell, const Ceilings& ceilings);
/// Everything, all samples included.
[[nodiscard]] nlohmann::ordered_json device_json(nlohmann::ordered_json header,
                                                 const std::vector<DeviceCell>& cells,
                                                 const Ceilings& ceilings);

}  // namespace dosa::cli
