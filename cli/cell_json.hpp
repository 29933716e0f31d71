// SPDX-License-Identifier: Apache-2.0
// What a cell of `dosa bench` is about, the same on every backend.
#pragma once

#include <nlohmann/json.hpp>

namespace dosa::cli {

/// `cell`: bench::Cell or DeviceCell.
template <class Cell>
[[nodiscard]] nlohmann::ordered_json cell_json(const Cell& cell) {
  return {{"input", cell.input},
          {"source", cell.source},
          {"domain", cell.domain},
          {"layer", cell.layer},
          {"seed", cell.seed},
          {"Q", cell.problem.num_queries},
          {"N", cell.problem.num_keys},
          {"H", cell.problem.num_heads},
          {"D", cell.problem.head_dim},
          {"K", cell.problem.topk},
          {"best_every_key", cell.outcomes[cell.best].contender.name}};
}

}  // namespace dosa::cli
