// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cell_json.hpp"

namespace dosa::cli {
namespace {

using bench::Cell;
using bench::median;
using bench::Outcome;
using bench::spread;
using nlohmann::ordered_json;

constexpr int kInputWidth = 24;

ordered_json outcome_json(const Cell& cell, const Outcome& outcome, bool cpu) {
  ordered_json mode = {{"mode", outcome.contender.name},
                       {"heads", outcome.contender.heads},
                       {"wall_s", outcome.times(false)},
                       {"cpu_s", outcome.times(true)},
                       {"speedup", median(cell.speedups(outcome, cpu))}};
  if (outcome.contender.peer != nullptr) mode["ids_in_common"] = outcome.in_common;
  if (outcome.peak_bytes >= 0) mode["peak_bytes"] = outcome.peak_bytes;
  if (outcome.contender.ours()) {
    mode["workspace_bytes"] = outcome.workspace_bytes;
    mode["visible"] = outcome.stats.visible;
    mode["screened"] = outcome.stats.screened;
    mode["fully_scored"] = outcome.stats.fully_scored;
    mode["records"] = outcome.stats.records;
    mode["rounds"] = outcome.stats.rounds;
    mode["screened_rows"] = outcome.stats.screened_rows;
    mode["mean_slack"] = outcome.stats.mean_slack;
    mode["mean_deficit"] = outcome.stats.mean_deficit;
  }
  if (outcome.screening_rows > 0) {
    mode["retained"] = outcome.retained;
    mode["screening_rows"] = outcome.screening_rows;
    mode["ceiling"] = cell.ceiling(outcome);
  }
  return mode;
}

/// The smallest of some values and where it was seen.
struct Least {
  double value = std::numeric_limits<double>::infinity();
  std::string where;

  void add(double seen, const Cell& cell, int retained) {
    if (!(seen < value)) return;
    value = seen;
    where = fmt::format("{}, N = {}", cell.input, cell.problem.num_keys);
    if (retained > 0) where += fmt::format(", r = {}", retained);
  }
  [[nodiscard]] std::string line(const char* what) const {
    return where.empty() ? "" : fmt::format("{}: {:.3f} ({})\n", what, value, where);
  }
};

}  // namespace

ordered_json bench_header(const bench::CellOptions& options, const std::string& openblas) {
  return {{"version", dosa_version()},
          {"cpu", bench::cpu_model()},
          {"simd", dosa_simd_target()},
          {"threads", options.threads},
          {"compiler", __VERSION__},
          {"openblas", openblas.empty() ? "not found, no sgemm" : openblas},
          {"repetitions", options.repetitions},
          {"judged_by", options.cpu_clock ? "CPU time" : "wall time"}};
}

std::string bench_head(const ordered_json& header) {
  std::string text;
  for (const auto& [name, value] : header.items()) {
    text +=
        fmt::format("{}: {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  text +=
      "ms: wall time, median; +-%: half the distance of the quartiles; x: times as fast as the\n"
      "better of base and full; ceiling: 1 / (R'/H + scored); sgemm: single precision, "
      "OpenBLAS\n\n";
  return text + fmt::format(
                    "{:<{}} {:>8} {:>5} {:>3}  {:<6} {:>5} {:>5} {:>8}  {:>10} {:>5} {:>10}"
                    "  {:>6} {:>5} {:>7} {:>7}\n",
                    "input", kInputWidth, "N", "Q", "H", "mode", "r", "R'", "scored", "ms", "+-%",
                    "CPU ms", "x", "+-%", "ceiling", "reached");
}

std::string bench_lines(const Cell& cell, bool cpu) {
  std::string text;
  for (const Outcome& outcome : cell.outcomes) {
    const std::vector<double> x = cell.speedups(outcome, cpu);
    const bool screened = outcome.screening_rows > 0;
    text += fmt::format("{:<{}.{}} {:>8} {:>5} {:>3}  {:<6} ", cell.input, kInputWidth, kInputWidth,
                        cell.problem.num_keys, cell.problem.num_queries, cell.problem.num_heads,
                        outcome.contender.name);
    text += screened ? fmt::format("{:5.1f} {:5.1f} {:7.2f}%", outcome.retained,
                                   outcome.screening_rows, 100 * outcome.survival())
                     : fmt::format("{:>5} {:>5} {:>8}", "", "", "");
    text += fmt::format("  {:10.3f} {:5.1f} {:10.3f}  {:6.3f} {:5.1f}",
                        1e3 * median(outcome.times(false)), 100 * spread(outcome.times(false)),
                        1e3 * median(outcome.times(true)), median(x), 100 * spread(x));
    if (screened) {
      text +=
          fmt::format(" {:7.3f} {:7.3f}", cell.ceiling(outcome), median(x) / cell.ceiling(outcome));
    }
    if (outcome.contender.peer != nullptr) {
      text += fmt::format("  {:.2f}% of the ids in common", 100 * outcome.in_common);
    }
    text += '\n';
  }
  return text;
}

std::string bench_summary(const std::vector<Cell>& cells, bool cpu) {
  Least of_auto;
  Least of_ceiling;
  Least of_sgemm;
  for (const Cell& cell : cells) {
    for (const Outcome& outcome : cell.outcomes) {
      const double x = median(cell.speedups(outcome, cpu));
      if (outcome.contender.peer != nullptr) continue;
      if (outcome.contender.sgemm) {
        of_sgemm.add(1 / x, cell, 0);
      } else if (outcome.contender.mode == DOSA_MODE_AUTO) {
        of_auto.add(x, cell, 0);
      } else if (outcome.screening_rows > 0) {
        of_ceiling.add(x / cell.ceiling(outcome), cell, outcome.contender.heads);
      }
    }
  }
  return of_auto.line("auto against the better of base and full, least") +
         of_ceiling.line("share of the ceiling reached at a given r, least") +
         of_sgemm.line("time of sgemm over that of the better of base and full, least");
}

ordered_json bench_json(ordered_json header, const std::vector<Cell>& cells, bool cpu) {
  header["cells"] = ordered_json::array();
  for (const Cell& cell : cells) {
    ordered_json modes = ordered_json::array();
    for (const Outcome& outcome : cell.outcomes) {
      modes.push_back(outcome_json(cell, outcome, cpu));
    }
    ordered_json one = cell_json(cell);
    one["modes"] = std::move(modes);
    header["cells"].push_back(std::move(one));
  }
  return header;
}

}  // namespace dosa::cli
