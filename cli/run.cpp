// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "commands.hpp"
#include "device/device.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "io/error.hpp"
#include "io/output_file.hpp"
#include "io/trace.hpp"
#include "progress.hpp"
#include "run.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

constexpr std::uint64_t kHeaderAllowance = 4096;  // more than the header of a result takes

/// The answer of one call.
struct Answer : Selection {
  dosa_stats stats{};
};

Answer compute(const dosa_problem& problem, dosa_options options, bool with_scores) {
  std::vector<std::byte> workspace = make_workspace(problem, options);
  const auto cells =
      static_cast<std::size_t>(problem.num_queries) * static_cast<std::size_t>(problem.topk);
  Answer answer;
  answer.indices.resize(std::max<std::size_t>(cells, 1));  // no null pointers where Q is 0
  answer.scores.resize(with_scores ? answer.indices.size() : 0);
  answer.stats.struct_size = sizeof answer.stats;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = answer.indices.data();
  output.indices_stride = problem.topk;
  output.scores = with_scores ? answer.scores.data() : nullptr;
  output.scores_stride = problem.topk;
  output.stats = &answer.stats;
  Progress progress("select", problem.num_queries);
  progress.attach(options);
  check(dosa_topk(&problem, &options, &output, workspace.data(), workspace.size()));
  return answer;
}

double pairs_per_second(const dosa_stats& stats) {
  return stats.seconds > 0 ? static_cast<double>(stats.visible) / stats.seconds : 0;
}

void print_json(const RunArgs& args, const dosa_problem& problem, const dosa_options& options,
                const dosa_stats& stats) {
  nlohmann::ordered_json json = {
      {"trace", args.engine.trace},
      {"model", "ieee"},
      {"shape", shape_json(problem)},
      {"options", options_json(options)},
      {"simd", dosa_simd_target()},
      {"threads", options.threads},
      {"rows", stats.rows},
      {"visible", stats.visible},
      {"screened", stats.screened},
      {"fully_scored", stats.fully_scored},
      {"records", stats.records},
      {"rounds", stats.rounds},
      {"fallback_rows", stats.fallback_rows},
      {"short_rows", stats.short_rows},
      {"screened_rows", stats.screened_rows},
      {"mean_slack", stats.mean_slack},
      {"mean_deficit", stats.mean_deficit},
      {"seconds", stats.seconds},
      {"pairs_per_second", pairs_per_second(stats)},
      {"version", dosa_version()},
  };
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const RunArgs& args, const dosa_problem& problem, const dosa_options& options,
                 const dosa_stats& stats) {
  const auto visible = static_cast<double>(stats.visible);
  const std::int64_t spared = stats.visible - stats.fully_scored;
  Table head({Table::Align::kLeft, Table::Align::kLeft});
  head.add({"trace", args.engine.trace});
  head.add({"shape", shape_text(problem)});
  head.add({"mode", fmt::format("{}, {}, {} threads", mode_text(options), dosa_simd_target(),
                                options.threads)});
  fmt::print("{}\n", head.text());

  Table body(
      {Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight, Table::Align::kLeft});
  const auto row = [&](const char* name, std::int64_t count, const char* what) {
    body.add({name, grouped(count), percent(static_cast<double>(count), visible), what});
  };
  row("visible", stats.visible, "pairs of a query and a key in its window");
  row("fully scored", stats.fully_scored, "with all heads");
  row("spared", spared, "rejected by their bound, forced, or in rows that keep all");
  body.skip();
  const auto rows = [&](const char* name, std::int64_t count, const char* what) {
    body.add({name, grouped(count), percent(static_cast<double>(count), double(stats.rows)), what});
  };
  rows("screened rows", stats.screened_rows, "used a certificate");
  rows("short rows", stats.short_rows, "at most K visible keys: all of them are selected");
  rows("fallback rows", stats.fallback_rows, "scored in full because no bound holds (NaN, Inf)");
  if (stats.screened > 0) {
    body.skip();
    body.add(
        {"mean slack", fmt::format("{:.4g}", stats.mean_slack), "", "bound - score, survivors"});
    body.add({"mean deficit", fmt::format("{:.4g}", stats.mean_deficit), "",
              "K-th score - threshold in use"});
  }
  body.skip();
  body.add({"time", duration(stats.seconds)});
  body.add({"throughput", scaled(pairs_per_second(stats)) + "/s", "", "visible pairs"});
  fmt::print("{}", body.text());
  if (!args.out.empty()) {
    fmt::print("\nwritten to {}\n", args.out);
  }
}

int run(const RunArgs& args) {
  const io::Trace trace = io::Trace::open(args.engine.trace);
  const dosa_problem problem = args.engine.problem(trace);
  const dosa_options options = args.engine.resolved();
  std::size_t bytes = 0;
  check(dosa_workspace_bytes(&problem, &options, &bytes));  // refuses what cannot be run
  const std::unique_ptr<io::OutputFile> output = open_output(args, problem);
  const Answer answer = compute(problem, options, args.scores);
  if (output != nullptr) commit_output(*output, args, problem, options, "ieee", answer);
  if (args.json) {
    print_json(args, problem, options, answer.stats);
  } else {
    print_table(args, problem, options, answer.stats);
  }
  return kSuccess;
}

}  // namespace

std::unique_ptr<io::OutputFile> open_output(const RunArgs& args, const dosa_problem& problem) {
  if (args.out.empty()) {
    if (args.scores) {
      throw Failure("--scores", "no --out", "a file to write the scores to");
    }
    return nullptr;
  }
  std::error_code ignored;
  if (std::filesystem::equivalent(args.out, args.engine.trace, ignored)) {
    throw Failure("--out", "the trace itself", "another file");
  }
  auto output = std::make_unique<io::OutputFile>(args.out);
  const auto cells =
      static_cast<std::uint64_t>(problem.num_queries) * static_cast<std::uint64_t>(problem.topk);
  const std::uint64_t cell_bytes = sizeof(std::int32_t) + (args.scores ? sizeof(float) : 0);
  output->reserve(cells * cell_bytes + kHeaderAllowance);
  return output;
}

void commit_output(io::OutputFile& output, const RunArgs& args, const dosa_problem& problem,
                   const dosa_options& options, const char* model, const Selection& answer) {
  // Not by options_json: values of the JSON library allocate when they are destroyed.
  output.commit(io::result_tensors(problem.num_queries, problem.topk, answer.indices.data(),
                                   args.scores ? answer.scores.data() : nullptr),
                {{"model", model},
                 {"form", std::string(form_name(options))},
                 {"order", std::string(order_name(options))}});
}

void add_run(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("run", "Select the K best keys of every query");
  const auto args = std::make_shared<RunArgs>();
  add_engine_options(*command, args->engine);
  add_backend(*command, args->engine.backend);
  command->add_option("-o,--out", args->out, "Write indices, I32 [Q, K], to this safetensors file")
      ->type_name("FILE");
  command->add_flag("--scores", args->scores, "Write scores, F32 [Q, K], as well");
  command->add_flag("--json", args->json, "Print the report as JSON");
  command->callback([args, &chosen] {
    chosen = [args] { return args->engine.backend == kCuda ? run_on_device(*args) : run(*args); };
  });
}

}  // namespace dosa::cli
