// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "device/device.hpp"
#include "device/events.hpp"
#include "device/problem.hpp"
#include "failure.hpp"
#include "io/trace.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

/// The answer of one call and what it cost.
struct Answer : Selection {
  dosa_cuda_counters counters{};
  std::size_t workspace_bytes = 0;
  double seconds = 0;  // on the device
};

Answer compute(const dosa_problem& problem, const dosa_options& options, bool with_scores) {
  Answer answer;
  check(dosa_cuda_workspace_bytes(&problem, &options, &answer.workspace_bytes));
  const auto cells =
      static_cast<std::size_t>(problem.num_queries) * static_cast<std::size_t>(problem.topk);
  const DeviceArray<std::byte> workspace(answer.workspace_bytes);
  const DeviceArray<std::int32_t> ids(cells);
  const DeviceArray<float> scores(with_scores ? cells : 0);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.get();
  output.indices_stride = problem.topk;
  output.scores = with_scores ? scores.get() : nullptr;
  output.scores_stride = problem.topk;
  const Event begin;
  const Event end;
  begin.record();
  check(dosa_cuda_topk(&problem, &options, &output, workspace.get(), workspace.bytes(), nullptr));
  end.record();
  answer.seconds = end.seconds_since(begin);
  answer.counters.struct_size = sizeof answer.counters;
  check(dosa_cuda_read_counters(workspace.get(), &answer.counters, nullptr));
  answer.indices = ids.host();
  answer.indices.resize(std::max<std::size_t>(cells, 1));  // no null pointers where Q is 0
  if (with_scores) {
    answer.scores = scores.host();
    answer.scores.resize(answer.indices.size());
  }
  return answer;
}

void print_json(const RunArgs& args, const dosa_problem& problem, const dosa_options& options,
                const std::string& device, const Answer& answer) {
  const nlohmann::ordered_json json = {
      {"trace", args.engine.trace},
      {"backend", "cuda"},
      {"model", model_on_device(options)},
      {"device", device},
      {"shape", shape_json(problem)},
      {"options", options_json(options)},
      {"rows", problem.num_queries},
      {"refined", answer.counters.refined},
      {"recovered_rows", answer.counters.recovered_rows},
      {"workspace_bytes", answer.workspace_bytes},
      {"seconds", answer.seconds},
      {"version", dosa_version()},
  };
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const RunArgs& args, const dosa_problem& problem, const dosa_options& options,
                 const std::string& device, const Answer& answer) {
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"trace", args.engine.trace});
  table.add({"shape", shape_text(problem)});
  table.add({"mode", mode_text(options)});
  table.add({"device", device});
  table.add({"refined", fmt::format("{} keys of row groups", grouped(answer.counters.refined))});
  table.add({"recovered rows", grouped(answer.counters.recovered_rows)});
  table.add({"workspace", bytes_text(answer.workspace_bytes)});
  table.add({"time", duration(answer.seconds) + ", the first call"});
  fmt::print("{}", table.text());
  if (!args.out.empty()) fmt::print("\nwritten to {}\n", args.out);
}

}  // namespace

int run_on_device(const RunArgs& args) {
  const std::string device = require_device();
  const io::Trace trace = io::Trace::open(args.engine.trace);
  const dosa_problem host = args.engine.problem(trace);
  const dosa_options options = args.engine.resolved_for_device();
  std::size_t bytes = 0;
  check(dosa_cuda_workspace_bytes(&host, &options, &bytes));  // refuses what cannot be run
  const std::unique_ptr<io::OutputFile> output = open_output(args, host);
  const DeviceProblem inputs(host);
  const Answer answer = compute(inputs.problem(), options, args.scores);
  if (output != nullptr)
    commit_output(*output, args, host, options, model_on_device(options), answer);
  if (args.json) {
    print_json(args, host, options, device, answer);
  } else {
    print_table(args, host, options, device, answer);
  }
  return kSuccess;
}

}  // namespace dosa::cli
