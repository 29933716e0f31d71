// SPDX-License-Identifier: Apache-2.0
// The modes of the engine against each other and against an independent baseline, in one run, on
// files and made inputs at many lengths.
#include <dosa/dosa.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "args.hpp"
#include "bench.hpp"
#include "bench_cell.hpp"
#include "bench_input.hpp"
#include "bench_report.hpp"
#include "commands.hpp"
#include "device/device.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "io/output_file.hpp"
#include "io/trace.hpp"
#include "progress.hpp"

namespace dosa::cli {
namespace {

constexpr std::int32_t kMostRepetitions = 1000;
constexpr std::int64_t kMostKeys = std::numeric_limits<std::int32_t>::max();

constexpr std::array<const char*, 6> kModes = {"base", "full", "sgemm", "screen", "auto", "dosa"};

std::vector<bench::Contender> contenders(const BenchArgs& args, int heads, bool sgemm,
                                         const std::vector<bench::Peer>& peers) {
  std::vector<bench::Contender> all;
  if (wanted(args, "base")) all.push_back({"base", DOSA_MODE_BASE});
  if (wanted(args, "full")) all.push_back({"full", DOSA_MODE_FULL});
  if (sgemm && wanted(args, "sgemm")) all.push_back({"sgemm", DOSA_MODE_BASE, 0, true});
  if (wanted(args, "auto")) all.push_back({"auto", DOSA_MODE_AUTO});
  std::vector<int> retained = args.heads;
  if (retained.empty()) retained = {heads / 4 - 1, heads / 2 - 1, heads * 3 / 4 - 1};
  for (const auto& [name, mode] :
       {std::pair{"screen", DOSA_MODE_SCREEN}, std::pair{"dosa", DOSA_MODE_DOSA}}) {
    for (const int r : retained) {
      if (wanted(args, name) && r >= 1 && r <= heads) all.push_back({name, mode, r});
    }
  }
  for (const bench::Peer& peer : peers) {
    all.push_back({peer.name(), DOSA_MODE_BASE, 0, false, &peer});
  }
  return all;
}

int run_bench(BenchArgs args) {
  if (args.cell.threads == 0) args.cell.threads = EngineArgs().resolved().threads;
  check_inputs(args);
  const std::vector<bench::Peer> peers(args.peers.begin(), args.peers.end());
  const std::unique_ptr<io::OutputFile> json =
      args.json.empty() ? nullptr : std::make_unique<io::OutputFile>(args.json);
  const bench::DenseSgemm sgemm;
  bench::CellRunner runner(sgemm, args.cell);
  const bool with_sgemm = sgemm.available() && !args.no_sgemm;
  const nlohmann::ordered_json head = bench_header(args.cell, sgemm.config());
  std::vector<bench::Cell> cells;
  for (const StudySource& source : sources(args)) {
    const StudyInput input = source.load();
    require_heads(args, input.problem.num_heads);
    for (const std::int64_t rows : args.rows) {
      for (const std::int64_t keys : lengths(args, input.problem.num_keys)) {
        if (cells.empty()) fmt::print("{}", bench_head(head));
        const io::ProblemPart part = io::cut(input.problem, rows, keys);
        cells.push_back(runner.run(input, part.problem,
                                   contenders(args, part.problem.num_heads, with_sgemm, peers)));
        fmt::print("{}", bench_lines(cells.back(), args.cell.cpu_clock));
        std::fflush(stdout);
      }
    }
  }
  require_cells(args, cells.empty());
  fmt::print("\n{}", bench_summary(cells, args.cell.cpu_clock));
  if (json != nullptr) json->commit(bench_json(head, cells, args.cell.cpu_clock).dump(1) + '\n');
  return 0;
}

}  // namespace

bool wanted(const BenchArgs& args, const std::string& mode) {
  if (args.modes.empty()) return mode != "screen";
  return std::ranges::find(args.modes, mode) != args.modes.end();
}

std::vector<std::int64_t> lengths(const BenchArgs& args, std::int64_t keys) {
  std::vector<std::int64_t> chosen;
  if (args.keys.empty()) {
    for (std::int64_t n = 1024; n < keys; n *= 2) chosen.push_back(n);
    chosen.push_back(keys);
  }
  for (const std::int64_t n : args.keys) {
    if (n <= keys) chosen.push_back(n);
  }
  return chosen;
}

void require_cells(const BenchArgs& args, bool none) {
  if (none) {
    throw Failure("--keys", fmt::format("{}", fmt::join(args.keys, ",")),
                  "a length that some input has");
  }
}

void require_heads(const BenchArgs& args, int heads) {
  if (!args.heads.empty() && *std::ranges::min_element(args.heads) > heads) {
    throw Failure("--heads", fmt::format("{}", fmt::join(args.heads, ",")),
                  fmt::format("at most H = {}", heads));
  }
}

std::vector<StudySource> sources(const BenchArgs& args) {
  const std::int64_t keys = args.keys.empty() ? kBenchKeys : *std::ranges::max_element(args.keys);
  const std::int64_t rows = *std::ranges::max_element(args.rows);
  return bench_sources(args.files, args.specs, {rows, keys}, args.topk);
}

void check_inputs(const BenchArgs& args) {
  if (args.files.empty() && args.specs.empty()) {
    throw Failure("arguments", "no input", "files or --gen");
  }
  // What all others are compared with, in speed and in ids.
  if (!wanted(args, "base") && !wanted(args, "full")) {
    throw Failure("--modes", fmt::format("{}", fmt::join(args.modes, ",")), "base or full with it");
  }
  for (const std::string& file : args.files) {  // all of them are there, before hours have passed
    static_cast<void>(io::Trace::open(file));
  }
}

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "bench", "Time the modes against each other; fails if their answers differ");
  const auto args = std::make_shared<BenchArgs>();
  command->add_option("TRACE", args->files, "Files; each is cut to its last rows and keys")
      ->type_name("");
  command->add_option("--gen", args->specs, "Made inputs: what follows `dosa gen`, as for `study`")
      ->type_name("SPEC");
  add_backend(*command, args->backend);
  add_score_model(*command, args->score_model);
  add_integers(*command, "--keys", args->keys, 1, kMostKeys,
               "Lengths; those over an input's are left out");
  add_integers(*command, "--heads", args->heads, 1, DOSA_MAX_HEADS,
               "Retained heads (default: H/4, H/2, 3H/4, less 1)");
  add_words(*command, "--modes", {kModes.begin(), kModes.end()}, args->modes,
            "Only these (default: all but screen)");
  command->add_option("--peer", args->peers, "A shared library to time as well (docs/report.md)")
      ->type_name("NAME=FILE");
  add_integers(*command, "--rows", args->rows, 1, kMostKeys, "Query rows, the last ones");
  add_integer(*command, "-k,--topk", args->topk, 1, DOSA_MAX_TOPK, "Keys to select per query");
  add_integer(*command, "--threads", args->cell.threads, 0, 1024, "0: as many as the machine has");
  add_integer(*command, "--repeat", args->cell.repetitions, 1, kMostRepetitions,
              "Repetitions, each in another order");
  add_integer(*command, "--phase-calls", args->phase_calls, 0, kMostRepetitions,
              "Calls of each mode that are timed by phase; --backend cuda only");
  add_seconds(*command, "--seconds", args->cell.least_seconds, "Least time of a repetition");
  add_seconds(*command, "--cell-seconds", args->cell.most_seconds,
              "Three repetitions are enough for an input and N that take longer");
  command->add_flag("--cpu-clock", args->cell.cpu_clock,
                    "Judge by CPU time: for a machine that others use");
  command->add_flag("--no-sgemm", args->no_sgemm,
                    "Leave out the independent baseline, which needs OpenBLAS");
  command->add_flag("--no-ceilings", args->no_ceilings,
                    "Do not measure what the card reaches at most; --backend cuda only");
  command->add_flag("--memory", args->cell.memory,
                    "Measure the peak of resident memory of one more call of each");
  command->add_option("--json", args->json, "Write every sample to this file")->type_name("FILE");
  command->callback([args, &chosen] {
    chosen = [args] { return args->backend == kCuda ? bench_on_device(*args) : run_bench(*args); };
  });
}

}  // namespace dosa::cli
