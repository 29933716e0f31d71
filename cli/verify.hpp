// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine_options.hpp"

namespace dosa::cli {

/// Arguments of `dosa verify`, whatever the backend.
struct VerifyArgs {
  EngineArgs engine;
  bool json = false;
};

/// The rejected pair that came closest to its bound.  `found`: dosa_verification or
/// dosa_cuda_verification.
template <class Found>
[[nodiscard]] nlohmann::ordered_json witness_json(const Found& found) {
  return {{"row", found.witness_row},
          {"key", found.witness_key},
          {"bound", found.witness_bound},
          {"score", found.witness_score}};
}

template <class Found>
[[nodiscard]] std::string witness_text(const Found& found) {
  return fmt::format("{:.6g}: bound {:.9g}, score {:.9g}, row {}, key {}", found.min_margin,
                     found.witness_bound, found.witness_score, found.witness_row,
                     found.witness_key);
}

}  // namespace dosa::cli
