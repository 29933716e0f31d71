// SPDX-License-Identifier: Apache-2.0
// Inputs of the measurements: files and made ones, cut to their last N keys.
#ifndef DOSA_BENCH_WORKLOAD_HPP
#define DOSA_BENCH_WORKLOAD_HPP

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
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
  workload.problem = data->problem();
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
  io::ProblemPart cut = io::cut(whole.problem, rows, keys);
  part.problem = cut.problem;
  part.start = std::move(cut.start);  // the memory that the problem's windows point to
  part.end = std::move(cut.end);
  return part;
}

/// Calls `visit(workload)` for every file, then for a made one of every kind, one at a time.
template <typename Visit>
void visit_workloads(const std::vector<std::string>& files, const std::vector<std::string>& made,
                     std::int64_t queries, std::int64_t keys, std::uint64_t seed, Visit&& visit) {
  for (const std::string& file : files) visit(open_workload(file));
  for (const std::string& kind : made) visit(make_workload(kind, queries, keys, seed));
}

/// The `main` of a measurement called `name`: an error becomes a line, and the exit code `failure`.
template <typename Run>
int run_program(const char* name, int failure, Run&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return failure;
  }
}

}  // namespace dosa::bench

#endif  // DOSA_BENCH_WORKLOAD_HPP
