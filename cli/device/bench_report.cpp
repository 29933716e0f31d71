// SPDX-License-Identifier: Apache-2.0
#include "device/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cell_json.hpp"
#include "engine/cuda_run.cuh"
#include "measure.hpp"

namespace dosa::cli {
namespace {

using bench::median;
using bench::spread;
using nlohmann::ordered_json;

constexpr int kInputWidth = 30;
constexpr double kMilli = 1e3;

int padded_heads(int heads) { return heads <= 32 ? 32 : (heads <= 64 ? 64 : 128); }

/// (row, key) pairs that refinement scores: a listed key is scored for all rows of its group.
double refined_pairs(const DeviceCell& cell, const DeviceOutcome& outcome) {
  constexpr int kColumns = 128;
  return static_cast<double>(outcome.counters.refined) * kColumns /
         padded_heads(cell.problem.num_heads);
}

double total(const std::vector<double>& samples) { return samples.empty() ? 0 : median(samples); }

ordered_json outcome_json(const DeviceCell& cell, const DeviceOutcome& outcome,
                          const Ceilings& ceilings) {
  ordered_json mode = {{"mode", outcome.contender.name},
                       {"heads", outcome.contender.heads},
                       {"wall_s", outcome.seconds},
                       {"enqueue_s", outcome.enqueue},
                       {"speedup", median(cell.speedups(outcome))}};
  if (outcome.contender.peer != nullptr) {
    mode["ids_in_common"] = outcome.in_common;
    return mode;
  }
  const Floors floors = floors_of(cell, outcome, ceilings);
  mode["workspace_bytes"] = outcome.workspace_bytes;
  mode["visible"] = cell.visible;
  mode["screening_rows"] = outcome.screen_rows == engine::kChosenOnDevice
                               ? ordered_json(nullptr)
                               : ordered_json(outcome.screen_rows);
  mode["refined_pairs"] = refined_pairs(cell, outcome);
  mode["recovered_rows"] = outcome.counters.recovered_rows;
  mode["phases_s"] = outcome.phases;
  mode["floors_s"] = {{"every_key", floors.every_key},
                      {"screen", floors.screen},
                      {"refine", floors.refine},
                      {"bytes", floors.bytes}};
  return mode;
}

ordered_json ceiling_json(const Ceiling& ceiling) {
  return {{"how", ceiling.how}, {"rates", ceiling.rates}};
}

}  // namespace

Floors floors_of(const DeviceCell& cell, const DeviceOutcome& outcome, const Ceilings& ceilings) {
  constexpr double kPerProduct = 2.0;  // a multiplication and an addition
  const dosa_problem& problem = cell.problem;
  Floors floors;
  const double dim = problem.head_dim;
  const double heads = problem.num_heads;
  const double visible = static_cast<double>(cell.visible);
  if (const double rate = ceilings.product.rate(); rate > 0) {
    floors.every_key = kPerProduct * dim * heads * visible / rate;
    floors.screen = kPerProduct * dim * std::max(outcome.screen_rows, 0) * visible / rate;
    floors.refine = kPerProduct * dim * heads * refined_pairs(cell, outcome) / rate;
  }
  if (const double rate = ceilings.copy.rate(); rate > 0) {
    const auto keys = static_cast<double>(problem.num_keys);
    const auto rows = static_cast<double>(problem.num_queries);
    const double bytes = keys * (dim + sizeof(float)) + rows * heads * (dim + sizeof(float)) +
                         rows * problem.topk * sizeof(std::int32_t);
    floors.bytes = bytes / rate;
  }
  return floors;
}

ordered_json device_header(const std::string& device, int repetitions, const Ceilings& ceilings) {
  int driver = 0;
  int runtime = 0;
  DOSA_CUDA(cudaDriverGetVersion(&driver));
  DOSA_CUDA(cudaRuntimeGetVersion(&runtime));
  const auto text = [](int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  };
  return {{"version", dosa_version()},
          {"backend", "cuda"},
          {"device", device},
          {"cpu", bench::cpu_model()},
          {"driver", "supports CUDA " + text(driver)},
          {"runtime", "CUDA " + text(runtime)},
          {"compiler", __VERSION__},
          {"repetitions", repetitions},
          {"judged_by", "time between two events, L2 cache overwritten before each call"},
          {"ceilings",
           {{"copy", ceiling_json(ceilings.copy)}, {"product", ceiling_json(ceilings.product)}}}};
}

std::string device_head(const ordered_json& header, const Ceilings& ceilings) {
  std::string text;
  for (const auto& [name, value] : header.items()) {
    if (name == "ceilings") continue;
    text +=
        fmt::format("{}: {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  const auto line = [&](const char* name, const Ceiling& ceiling, const char* unit) {
    if (ceiling.rates.empty()) return fmt::format("{}: {}\n", name, ceiling.how);
    constexpr double kTera = 1e12;
    return fmt::format("{}: {:.4g} {} (+-{:.1f}%), {}\n", name, ceiling.rate() / kTera, unit,
                       100 * spread(ceiling.rates), ceiling.how);
  };
  text += line("copy", ceilings.copy, "TB/s") + line("product", ceilings.product, "TFLOP/s");
  text +=
      "ms: median of a call; +-%: half the distance of the quartiles; x: times as fast as the\n"
      "better of base and full; floor: products of the mode over the product ceiling, ms;\n"
      "R' *: chosen on the device, so that its floor is not known\n\n";
  return text + fmt::format(
                    "{:<{}} {:>8} {:>6} {:>3}  {:<6} {:>3} {:>3} {:>9} {:>5} {:>6} {:>9} "
                    "{:>8}  phases, ms\n",
                    "input", kInputWidth, "N", "Q", "H", "mode", "r", "R'", "ms", "+-%", "x",
                    "floor", "refined");
}

std::string device_lines(const DeviceCell& cell, const Ceilings& ceilings) {
  std::string text;
  for (const DeviceOutcome& outcome : cell.outcomes) {
    const Floors floors = floors_of(cell, outcome, ceilings);
    const bool chosen = outcome.screen_rows == engine::kChosenOnDevice;
    const bool screened = outcome.screen_rows != 0;
    const bool ours = outcome.contender.peer == nullptr;
    const double floor = screened ? floors.screen + floors.refine : floors.every_key;
    text += fmt::format("{:<{}.{}} {:>8} {:>6} {:>3}  {:<6} {:>3} {:>3} {:9.3f} {:5.1f} {:6.3f} ",
                        cell.input, kInputWidth, kInputWidth, cell.problem.num_keys,
                        cell.problem.num_queries, cell.problem.num_heads, outcome.contender.name,
                        outcome.contender.heads,
                        chosen ? std::string("*") : std::to_string(outcome.screen_rows),
                        kMilli * median(outcome.seconds), 100 * spread(outcome.seconds),
                        median(cell.speedups(outcome)));
    text += ours && !chosen ? fmt::format("{:9.3f} ", kMilli * floor) : fmt::format("{:>9} ", "");
    text += screened ? fmt::format("{:7.3f}% ", 100 * refined_pairs(cell, outcome) /
                                                    static_cast<double>(cell.visible))
                     : fmt::format("{:>8} ", "");
    for (const auto& [phase, seconds] : outcome.phases) {
      text += fmt::format(" {} {:.3g}", phase, kMilli * total(seconds));
    }
    if (!ours) text += fmt::format(" {:.2f}% of the ids in common", 100 * outcome.in_common);
    text += '\n';
  }
  return text;
}

ordered_json device_json(ordered_json header, const std::vector<DeviceCell>& cells,
                         const Ceilings& ceilings) {
  header["cells"] = ordered_json::array();
  for (const DeviceCell& cell : cells) {
    ordered_json modes = ordered_json::array();
    for (const DeviceOutcome& outcome : cell.outcomes) {
      modes.push_back(outcome_json(cell, outcome, ceilings));
    }
    ordered_json one = cell_json(cell);
    one["visible"] = cell.visible;
    one["modes"] = std::move(modes);
    header["cells"].push_back(std::move(one));
  }
  return header;
}

}  // namespace dosa::cli
