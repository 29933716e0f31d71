// SPDX-License-Identifier: Apache-2.0
#include "study_engine.hpp"

#include <cstddef>

#include "engine_options.hpp"
#include "failure.hpp"
#include "measure.hpp"

namespace dosa::cli {
namespace {

/// The options that the paper's rules differ in.
dosa_options paper_rules(dosa_options options) {
  options.statistics = DOSA_STATISTICS_SEEDS;
  options.allowance = DOSA_ALLOWANCE_TRIANGLE;
  return options;
}

void add_components(const dosa_options& screening, const std::string& threshold,
                    std::vector<EngineRun>& runs) {
  const dosa_options full = paper_rules(screening);
  const auto add = [&](const char* name, const dosa_options& options) {
    runs.push_back({std::string(name) + ", " + threshold, options});
  };
  add("full certificate", full);
  dosa_options varied = full;
  varied.aggregate = DOSA_AGGREGATE_NONE;
  add("no aggregate", varied);
  varied.aggregate = DOSA_AGGREGATE_ALL;
  add("aggregate all", varied);
  varied = full;
  varied.retain = DOSA_RETAIN_STRENGTH;
  add("strength only", varied);
  varied = full;
  varied.projection = 0;
  add("no projection", varied);
}

std::vector<EngineRun> planned_runs(const dosa_options& common, int retained) {
  std::vector<EngineRun> runs;
  dosa_options options = common;
  for (const auto& [name, mode] :
       {std::pair{"base", DOSA_MODE_BASE}, std::pair{"full", DOSA_MODE_FULL},
        std::pair{"auto", DOSA_MODE_AUTO}}) {
    options.mode = mode;
    runs.push_back({name, options});
  }
  options.mode = DOSA_MODE_DOSA;
  options.heads = retained;
  runs.push_back({"defaults, rising", options});
  add_components(options, "rising", runs);
  options.threshold = DOSA_THRESHOLD_FIXED;
  runs.push_back({"defaults, fixed", options});
  add_components(options, "fixed", runs);
  return runs;
}

/// Runs the call once; returns its ids.
std::vector<std::int32_t> call(const dosa_problem& problem, EngineRun& run) {
  std::vector<std::byte> workspace = make_workspace(problem, run.options);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(problem.num_queries) *
                                    static_cast<std::size_t>(problem.topk));
  run.stats.struct_size = sizeof run.stats;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = indices.data();
  output.indices_stride = problem.topk;
  output.stats = &run.stats;
  check(dosa_topk(&problem, &run.options, &output, workspace.data(), workspace.size()));
  run.seconds.push_back(run.stats.seconds);
  return indices;
}

}  // namespace

double EngineRun::median() const { return bench::median(seconds); }
double EngineRun::spread() const {
  return (bench::quantile(seconds, 0.75) - bench::quantile(seconds, 0.25)) / 2;
}

std::vector<EngineRun> engine_runs(const StudyInput& input, int retained,
                                   const dosa_options& common, int repetitions,
                                   const std::function<void()>& step) {
  std::vector<EngineRun> runs;
  if (repetitions == 0) return runs;
  runs = planned_runs(common, retained);
  std::vector<std::int32_t> expected;
  for (int n = 0; n < repetitions; ++n) {
    for (EngineRun& run : runs) {
      const std::vector<std::int32_t> indices = call(input.problem, run);
      if (expected.empty()) expected = indices;
      run.identical = run.identical && indices == expected;
      step();
    }
  }
  return runs;
}

std::int64_t engine_steps(int repetitions) {
  return repetitions * static_cast<std::int64_t>(planned_runs({}, 1).size());
}

}  // namespace dosa::cli
