// SPDX-License-Identifier: Apache-2.0
// Inputs of the measurements: files and made ones, cut to their last N keys.
#ifndef DOSA_BENCH_WORKLOAD_HPP
#define DOSA_BENCH_WORKLOAD_HPP

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dosa/dosa.h"
#include "io/gen_exact.hpp"
#include "io/gen_model.hpp"
#include "io/trace.hpp"

namespace dosa::bench {

/// A problem with everything that its pointers need.
struct Workload {
  std::string name;
  dosa_problem problem{};
  std::shared_ptr<const void> owner;  // the file or the data behind the pointers
  std::vector<std::int32_t> start, end;
};

inline Workload open_workload(const std::string& path) {
  auto trace = std::make_shared<io::Trace>(io::Trace::open(path));
  Workload workload;
  const std::size_t slash = path.rfind('/');
  workload.name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  workload.name = workload.name.substr(0, workload.name.rfind(".safetensors"));
  workload.problem = trace->problem();
  workload.owner = trace;
  return workload;
}

inline Workload own(const std::string& name, io::TraceData made) {
  auto data = std::make_shared<io::TraceData>(std::move(made));
  Workload workload;
  workload.name = name;
  dosa_problem& problem = workload.problem;
  problem.struct_size = sizeof problem;
  problem.num_queries = data->num_queries;
  problem.num_keys = data->num_keys;
  problem.num_heads = static_cast<std::int32_t>(data->num_heads);
  problem.head_dim = static_cast<std::int32_t>(data->head_dim);
  problem.page_size = 1;
  problem.q = data->q.data();
  problem.q_stride = data->num_heads * data->head_dim;
  problem.k = data->k.data();
  problem.k_stride = data->head_dim;
  problem.k_scale = data->k_scale.data();
  problem.weights = data->weights.data();
  problem.weights_stride = data->num_heads;
  problem.k_start = data->k_start.data();
  problem.k_end = data->k_end.data();
  workload.owner = data;
  return workload;
}

/// `kind`: real, int, residue (the exact inputs), or MODEL[:ROWS[:LAYER]], MODEL glm52 or dsv32.
/// The rows are the last `queries` tokens of `keys`, and see what is not behind them.
inline Workload make_workload(const std::string& kind, std::int64_t queries, std::int64_t keys,
                              std::uint64_t seed) {
  const io::ExactShape shape{queries, keys, 32, 128, seed};
  const auto causal = [&](io::TraceData data) {
    io::set_windows(data, io::Windows::kCausal, 0);
    return own(kind, std::move(data));
  };
  if (kind == "real") return causal(io::make_real(shape));
  if (kind == "int") return causal(io::make_int(shape));
  if (kind == "residue") return causal(io::make_residue(shape));
  const std::size_t first = kind.find(':');
  const std::string model = kind.substr(0, first);
  int rows = 16;
  int layer = 5;
  if (first != std::string::npos) {
    const std::size_t second = kind.find(':', first + 1);
    rows = std::stoi(kind.substr(first + 1));
    if (second != std::string::npos) layer = std::stoi(kind.substr(second + 1));
  }
  const io::GenShape sizes{queries, keys, 1, seed, 0};
  if (model == "glm52") {
    return own(kind, io::generate(io::glm52_model(rows, layer, io::GenDomain::kEnglish), sizes));
  }
  if (model == "dsv32") {
    return own(kind, io::generate(io::dsv32_model(rows, layer, io::GenDomain::kEnglish), sizes));
  }
  throw std::runtime_error("--gen " + kind + ": expected real, int, residue, glm52 or dsv32");
}

/// The last `rows` rows with only the last `keys` keys: the most recent context.
inline Workload cut(const Workload& whole, std::int64_t rows, std::int64_t keys) {
  Workload part = whole;
  dosa_problem& problem = part.problem;
  const std::int64_t skip_rows = std::max<std::int64_t>(0, problem.num_queries - rows);
  const std::int64_t skip_keys = std::max<std::int64_t>(0, problem.num_keys - keys);
  problem.num_queries -= skip_rows;
  problem.num_keys -= skip_keys;
  problem.q += skip_rows * problem.q_stride;
  problem.weights += skip_rows * problem.weights_stride;
  problem.k += skip_keys * problem.k_stride;
  problem.k_scale += skip_keys;
  for (std::int64_t row = skip_rows; row < skip_rows + problem.num_queries; ++row) {
    const std::int64_t start = whole.problem.k_start != nullptr ? whole.problem.k_start[row] : 0;
    const std::int64_t end =
        whole.problem.k_end != nullptr ? whole.problem.k_end[row] : whole.problem.num_keys;
    part.start.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, start - skip_keys)));
    part.end.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, end - skip_keys)));
  }
  problem.k_start = part.start.data();
  problem.k_end = part.end.data();
  return part;
}

}  // namespace dosa::bench

#endif  // DOSA_BENCH_WORKLOAD_HPP
