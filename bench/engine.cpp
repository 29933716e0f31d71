// SPDX-License-Identifier: Apache-2.0
// bench_engine: the modes of the engine against each other and against an independent baseline, in
// one run, on files and made inputs at many lengths.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine_cell.hpp"
#include "plan/operands.hpp"
#include "workload.hpp"

namespace {

using namespace dosa::bench;
using nlohmann::json;

struct Arguments {
  std::vector<std::string> files, made;
  std::vector<std::int64_t> keys = {1024,  2048,  3072,   4096,   8192,   16384,
                                    32768, 65536, 131072, 262144, 524288, 1048576};
  std::vector<int> heads;
  std::int64_t rows = 256;  // groups of 128 on two threads, as in a call of serving size
  int topk = 2048;
  std::uint64_t seed = 1;
  std::string json_path;
  CellOptions cell;
};

/// "a,b,c" as a list.
template <typename Convert>
auto split(const std::string& text, const Convert& convert) {
  std::vector<decltype(convert(text))> items;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(convert(item));
  return items;
}

Arguments parse(CLI::App& app, int argc, char** argv) {
  Arguments arguments;
  std::string made;
  std::string keys;
  std::string heads;
  app.add_option("FILE", arguments.files, "traces; each is cut to its last N keys");
  app.add_option("--gen", made, "made inputs: real,int,residue,glm52:8,dsv32:16:LAYER,...");
  app.add_option("--keys", keys, "N,N,...; those over an input's length are left out");
  app.add_option("--heads", heads, "r,r,... (default: a quarter, half, 3/4 of H, less 1)");
  app.add_option("--rows", arguments.rows, "query rows, the last ones");
  app.add_option("-k,--topk", arguments.topk);
  app.add_option("--threads", arguments.cell.threads);
  app.add_option("--repetitions", arguments.cell.repetitions);
  app.add_option("--seconds", arguments.cell.least_seconds, "least time of a repetition");
  app.add_option("--cell-seconds", arguments.cell.most_seconds,
                 "three repetitions are enough for an input and N that take longer");
  app.add_option("--seed", arguments.seed, "of the made inputs");
  app.add_flag("--cpu-clock", arguments.cell.cpu_clock,
               "judge by the process's CPU time: for a machine that others use");
  app.add_option("--json", arguments.json_path, "write all samples here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  const auto number = [](const std::string& item) { return std::stoll(item); };
  arguments.made = split(made, [](const std::string& item) { return item; });
  if (!keys.empty()) arguments.keys.clear();
  for (const long long n : split(keys, number)) arguments.keys.push_back(n);
  for (const long long r : split(heads, number)) arguments.heads.push_back(static_cast<int>(r));
  if (arguments.files.empty() && arguments.made.empty()) arguments.made = {"glm52:8", "real"};
  return arguments;
}

std::vector<Contender> contenders(const Arguments& arguments, int heads, bool dense) {
  std::vector<Contender> all = {{"base", DOSA_MODE_BASE}, {"full", DOSA_MODE_FULL}};
  if (dense) all.push_back({"sgemm", DOSA_MODE_BASE, 0, true});
  all.push_back({"auto", DOSA_MODE_AUTO});
  std::vector<int> retained = arguments.heads;
  if (retained.empty()) retained = {heads / 4 - 1, heads / 2 - 1, heads * 3 / 4 - 1};
  for (const int r : retained) {
    if (r >= 1 && r <= heads) all.push_back({"dosa", DOSA_MODE_DOSA, r});
  }
  return all;
}

void print_head() {
  std::printf("%-18s %8s %4s %3s  %-6s %5s %5s %8s  %10s %5s %10s  %6s %5s %7s %7s\n", "input", "N",
              "Q", "H", "mode", "r", "R'", "scored", "ms", "+-%", "CPU ms", "x", "+-%", "ceiling",
              "reached");
}

/// One line per mode. x: how many times faster than the best mode that scores every key.
void print(const Cell& cell, bool cpu) {
  for (const Outcome& outcome : cell.outcomes) {
    const std::vector<double> x = cell.speedups(outcome, cpu);
    const bool screened = outcome.screening_rows > 0;
    std::printf("%-18.18s %8lld %4lld %3d  %-6s ", cell.input.c_str(),
                static_cast<long long>(cell.problem.num_keys),
                static_cast<long long>(cell.problem.num_queries), cell.problem.num_heads,
                outcome.contender.name.c_str());
    if (screened) {
      std::printf("%5.1f %5.1f %7.2f%%", outcome.retained, outcome.screening_rows,
                  100 * outcome.survival());
    } else {
      std::printf("%5s %5s %8s", "", "", "");
    }
    std::printf("  %10.3f %5.1f %10.3f  %6.3f %5.1f", 1e3 * median(outcome.times(false)),
                100 * spread(outcome.times(false)), 1e3 * median(outcome.times(true)), median(x),
                100 * spread(x));
    if (screened) {
      std::printf(" %7.3f %7.3f", cell.ceiling(outcome), median(x) / cell.ceiling(outcome));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

json to_json(const Cell& cell, bool cpu) {
  json modes = json::array();
  for (const Outcome& outcome : cell.outcomes) {
    json mode = {{"mode", outcome.contender.name},
                 {"heads", outcome.contender.heads},
                 {"wall_s", outcome.times(false)},
                 {"cpu_s", outcome.times(true)},
                 {"speedup", median(cell.speedups(outcome, cpu))}};
    if (!outcome.contender.dense) {
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
    modes.push_back(mode);
  }
  return {{"input", cell.input},
          {"Q", cell.problem.num_queries},
          {"N", cell.problem.num_keys},
          {"H", cell.problem.num_heads},
          {"D", cell.problem.head_dim},
          {"K", cell.problem.topk},
          {"best_every_key", cell.outcomes[cell.best].contender.name},
          {"modes", modes}};
}

/// What the run as a whole has to show: the worst of `auto`, the least of the ceiling reached.
void print_summary(const std::vector<Cell>& cells, bool cpu) {
  double worst_auto = 1e30;
  double least = 1e30;
  double dense = 1e30;
  std::string worst_auto_at;
  std::string least_at;
  std::string dense_at;
  const auto note = [](double value, double& worst, std::string& at, const Cell& cell, int r) {
    if (!(value < worst)) return;
    worst = value;
    at = cell.input + ", N = " + std::to_string(cell.problem.num_keys);
    if (r > 0) at += ", r = " + std::to_string(r);
  };
  for (const Cell& cell : cells) {
    for (const Outcome& outcome : cell.outcomes) {
      const double x = median(cell.speedups(outcome, cpu));
      const Contender& contender = outcome.contender;
      if (contender.dense) {
        note(1 / x, dense, dense_at, cell, 0);
      } else if (contender.mode == DOSA_MODE_AUTO) {
        note(x, worst_auto, worst_auto_at, cell, 0);
      } else if (outcome.screening_rows > 0) {
        note(x / cell.ceiling(outcome), least, least_at, cell, contender.heads);
      }
    }
  }
  std::printf("\nauto against the best mode that scores every key, worst: %.3f (%s)\n", worst_auto,
              worst_auto_at.c_str());
  if (least < 1e30) {
    std::printf("share of the ceiling reached at fixed r, least: %.3f (%s)\n", least,
                least_at.c_str());
  }
  if (dense < 1e30) {
    std::printf("sgemm's time over that of the best mode that scores every key, least: %.3f (%s)\n",
                dense, dense_at.c_str());
  }
}

std::vector<Cell> measure(const Arguments& arguments, const DenseSgemm& dense) {
  std::vector<Cell> cells;
  CellRunner runner(dense, arguments.cell);
  const auto visit = [&](const Workload& whole) {
    for (const std::int64_t keys : arguments.keys) {
      if (keys > whole.problem.num_keys) continue;
      const Workload part = cut(whole, arguments.rows, keys);
      dosa_problem problem = part.problem;
      problem.topk = arguments.topk;
      cells.push_back(runner.run(whole.name, problem,
                                 contenders(arguments, problem.num_heads, dense.available())));
      print(cells.back(), arguments.cell.cpu_clock);
    }
  };
  for (const std::string& file : arguments.files) visit(open_workload(file));
  const std::int64_t longest = *std::max_element(arguments.keys.begin(), arguments.keys.end());
  for (const std::string& kind : arguments.made) {
    visit(make_workload(kind, std::min(arguments.rows, longest), longest, arguments.seed));
  }
  return cells;
}

int run(int argc, char** argv) {
  CLI::App app("The modes of the engine against each other, in one run");
  const Arguments arguments = parse(app, argc, argv);
  const DenseSgemm dense;
  const json header = {
      {"cpu", cpu_model()},
      {"simd", dosa::plan::simd_name()},
      {"threads", arguments.cell.threads},
      {"commit", command_line_output("git describe --always --dirty --abbrev=12 2>/dev/null")},
      {"compiler", __VERSION__},
      {"openblas", dense.config()},
      {"seed", arguments.seed},
      {"repetitions", arguments.cell.repetitions},
      {"judged_by", arguments.cell.cpu_clock ? "CPU time" : "wall time"}};
  for (const auto& [name, value] : header.items()) {
    std::printf("%s: %s\n", name.c_str(), value.dump().c_str());
  }
  print_head();
  const std::vector<Cell> cells = measure(arguments, dense);
  print_summary(cells, arguments.cell.cpu_clock);
  if (arguments.json_path.empty()) return 0;
  json report = header;
  for (const Cell& cell : cells) report["cells"].push_back(to_json(cell, arguments.cell.cpu_clock));
  std::ofstream out(arguments.json_path);
  out << report.dump(1) << '\n';
  return out.good() ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_engine: %s\n", error.what());
    return 1;
  }
}
