// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <set>

#include "args.hpp"
#include "commands.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "io/error.hpp"
#include "io/output_file.hpp"
#include "progress.hpp"
#include "study_result.hpp"

namespace dosa::cli {
namespace {

constexpr std::int32_t kMostRows = 4096;
constexpr std::int32_t kMostRepetitions = 1000;
constexpr std::array<int, 4> kAges = {1, 4, 16, 64};

struct StudyArgs {
  std::vector<std::string> files;
  std::vector<std::string> specs;
  std::vector<int> widths = {4, 6, 8, 12, 14, 16, 22, 30};
  std::vector<std::string> facets;
  std::int32_t topk = 2048;
  std::int32_t rows = 8;
  std::int32_t retained = 0;
  std::int32_t repetitions = 0;
  std::int32_t threads = 0;
  bool published = false;
  std::string json, csv;
};

/// r of the study: what a generated workload was calibrated for (two of its screening rows are an
/// aggregate's), or 14 of 32 heads and 22 of 64.
int main_retained(const StudyArgs& args, const StudyInput& input) {
  const int heads = input.problem.num_heads;
  if (args.retained > heads) {
    throw Failure("--heads", std::to_string(args.retained),
                  fmt::format("at most H = {} of {}", heads, input.name));
  }
  if (args.retained > 0) return args.retained;
  if (input.variant > 2) return std::min(heads, input.variant - 2);
  return std::min(heads, heads / 4 + 6);
}

/// Rows to replay: spread from the second to the last, those that see more than K keys.
std::vector<std::int64_t> choose_rows(const StudyArgs& args, const StudyInput& input,
                                      const Replay& replay) {
  const std::int64_t last = input.problem.num_queries - 1;
  std::set<std::int64_t> rows;
  for (std::int64_t n = 0; n < args.rows && last >= 1; ++n) {
    const std::int64_t steps = std::max<std::int64_t>(1, args.rows - 1);
    const std::int64_t row = args.rows == 1 ? last : 1 + n * (last - 1) / steps;
    if (replay.usable(row)) rows.insert(row);
  }
  if (rows.empty()) {
    throw Failure(io::printable(input.name),
                  fmt::format("no row behind the first with more than K = {} visible keys and "
                              "finite values",
                              input.problem.topk),
                  "at least one");
  }
  return {rows.begin(), rows.end()};
}

/// Tokens from one row to the next, as the windows tell.
std::int64_t tokens_between_rows(const dosa_problem& problem) {
  const std::int64_t last = problem.num_queries - 1;
  if (last < 1) return 1;
  return std::max<std::int64_t>(1, problem.k_end[last] - problem.k_end[last - 1]);
}

double share_over(const dosa_problem& problem, int retained) {
  std::int64_t over = 0;
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    const float* weights = problem.weights + row * problem.weights_stride;
    const auto positive =
        std::count_if(weights, weights + problem.num_heads, [](float w) { return w > 0; });
    over += positive > retained ? 1 : 0;
  }
  return static_cast<double>(over) /
         static_cast<double>(std::max<std::int64_t>(1, problem.num_queries));
}

std::vector<StudyCase> wanted_cases(const StudyArgs& args, const StudyResult& result) {
  const dosa_problem& problem = result.input.problem;
  StudyScope scope{problem.num_heads, result.retained, args.widths, {}, result.row_tokens};
  for (const int age : kAges) {
    if (age < problem.num_queries) scope.ages.push_back(age);
  }
  std::vector<StudyCase> cases = study_cases(scope);
  cases.erase(std::remove_if(cases.begin(), cases.end(),
                             [&](const StudyCase& one) {
                               return std::find(args.facets.begin(), args.facets.end(),
                                                one.facet) == args.facets.end();
                             }),
              cases.end());
  if (cases.empty()) {  // only `retained` can have none
    throw Failure("--widths", fmt::format("{}", fmt::join(args.widths, ",")),
                  fmt::format("one of at most H = {} of {}", problem.num_heads,
                              io::printable(result.input.name)));
  }
  return cases;
}

/// The distinct plans of the cases, and which plan each case has.
struct Plans {
  std::vector<StudyPlan> distinct;
  std::vector<std::size_t> of_case;

  std::size_t add(const StudyPlan& plan) {
    const auto found = std::find_if(distinct.begin(), distinct.end(),
                                    [&](const StudyPlan& other) { return same_plan(plan, other); });
    if (found != distinct.end()) return static_cast<std::size_t>(found - distinct.begin());
    distinct.push_back(plan);
    return distinct.size() - 1;
  }
};

void add_trajectories(const std::vector<RowResult>& rows, StudyResult& result) {
  const char* const names[] = {"paper's rules", "defaults"};
  for (std::size_t t = 0; t < std::size(names); ++t) {
    Trajectory mean;
    for (const RowResult& row : rows) {
      for (std::size_t step = 0; step < kScanSteps; ++step) {
        mean.deficit[step] += row.trajectories[t].deficit[step] / static_cast<double>(rows.size());
        mean.scored[step] += row.trajectories[t].scored[step] / static_cast<double>(rows.size());
      }
    }
    result.trajectories.emplace_back(names[t], mean);
  }
}

/// Replays the chosen rows and fills the result.
void replay_rows(const StudyArgs& args, int threads, const std::function<void()>& step,
                 StudyResult& result) {
  Plans plans;
  plans.add(paper_plan(result.retained));  // the two whose course is traced
  plans.add(default_plan(result.retained));
  plans.of_case.reserve(result.cases.size());
  for (const StudyCase& one : result.cases) plans.of_case.push_back(plans.add(one.plan));
  Replay replay(result.input, plans.distinct, {0, 1});
  result.rows = choose_rows(args, result.input, replay);
  std::set<std::int64_t> pools = {0};
  for (const StudyPlan& plan : plans.distinct) {
    for (const std::int64_t row : result.rows) {
      if (plan.age > 0 && plan.age <= row) pools.insert(row - plan.age);
    }
  }
  replay.add_pools({pools.begin(), pools.end()}, threads);
  std::vector<RowResult> rows(result.rows.size());
  for_each_parallel(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t n) {
    rows[static_cast<std::size_t>(n)] = replay.run(result.rows[static_cast<std::size_t>(n)]);
    step();
  });
  const auto count = static_cast<double>(rows.size());
  for (const std::size_t plan : plans.of_case) {
    std::vector<Metrics> metrics;
    metrics.reserve(rows.size());
    for (const RowResult& row : rows) metrics.push_back(row.plans[plan]);
    result.metrics.push_back(std::move(metrics));
  }
  for (const RowResult& row : rows) {
    result.visible.push_back(row.visible);
    result.positive += row.positive / count;
    result.above_fixed += row.above_fixed / count;
    result.near_zero += row.near_zero / count;
    result.violations += row.violations;
  }
  add_trajectories(rows, result);
}

/// Everything about one input.
StudyResult study_input(const StudyArgs& args, const StudySource& source,
                        const dosa_options& options, const std::function<void()>& step) {
  StudyResult result;
  result.input = source.load();
  result.retained = main_retained(args, result.input);
  result.row_tokens = tokens_between_rows(result.input.problem);
  result.cases = wanted_cases(args, result);
  result.over_retained = share_over(result.input.problem, result.retained);
  replay_rows(args, options.threads, step, result);
  result.runs = engine_runs(result.input, result.retained, options, args.repetitions, step);
  result.input.owner.reset();
  return result;
}

void write_text(io::OutputFile* file, const std::string& text) {
  if (file != nullptr) file->commit(text);
}

std::unique_ptr<io::OutputFile> open_text(const std::string& path) {
  return path.empty() ? nullptr : std::make_unique<io::OutputFile>(path);
}

int study(StudyArgs args) {
  if (args.files.empty() && args.specs.empty() && args.published) {
    args.specs = {"glm52 --rows 8,16 --layer 0-20 --domain en"};
  }
  if (args.facets.empty() && args.published) args.facets = {"components"};
  if (args.facets.empty()) args.facets = study_facets();
  const std::vector<StudySource> sources = study_sources(args.files, args.specs, args.topk);
  if (sources.empty()) {
    throw Failure("arguments", "no input", "files, --gen or --published");
  }
  const std::unique_ptr<io::OutputFile> json = open_text(args.json);
  const std::unique_ptr<io::OutputFile> csv = open_text(args.csv);
  EngineArgs engine;
  engine.options.threads = args.threads;
  const dosa_options options = engine.resolved();
  std::vector<StudyResult> results;
  {
    const std::int64_t steps = args.rows + engine_steps(args.repetitions);
    Progress progress("study", static_cast<std::int64_t>(sources.size()) * steps);
    std::atomic<std::int64_t> done{0};
    for (const StudySource& source : sources) {
      results.push_back(study_input(args, source, options, [&] { progress.report(++done); }));
    }
  }
  write_text(
      json.get(),
      study_json(results).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
  write_text(csv.get(), study_csv(results));
  fmt::print("{}", args.published ? published_table(results) : study_tables(results));
  std::int64_t wrong = 0;
  for (const StudyResult& result : results) {
    wrong += result.violations;
    for (const EngineRun& run : result.runs) wrong += run.identical ? 0 : 1;
  }
  if (wrong > 0) fmt::print("\n{} bounds below their score or different answers\n", wrong);
  return wrong == 0 ? kSuccess : kDifference;
}

void add_inputs(CLI::App& command, StudyArgs& args) {
  command.add_option("FILES", args.files, "Traces")->type_name("FILE...");
  command
      .add_option("--gen", args.specs,
                  "What follows `dosa gen`, quoted; --layer, --rows, --seed, --keys and "
                  "--domain may list values: \"glm52 --layer 0-20 --domain en,zh\"")
      ->type_name("SPEC...");
  command.add_flag("--published", args.published,
                   "What is published for GLM-5.2 beside what is measured; without inputs: all "
                   "layers of both variants");
}

}  // namespace

void add_study(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "study", "Measure what each part of the certificate does; exit code 1 if a bound is wrong");
  const auto args = std::make_shared<StudyArgs>();
  add_inputs(*command, *args);
  add_integer(*command, "-k,--topk", args->topk, 1, DOSA_MAX_TOPK, "Keys to select per query");
  add_integer(*command, "--sample", args->rows, 1, kMostRows, "Rows to replay of each input");
  add_integer(*command, "--heads", args->retained, 0, DOSA_MAX_HEADS,
              "Retained heads where they are not varied; 0: by the input");
  add_integers(*command, "--widths", args->widths, 1, DOSA_MAX_HEADS, "Retained heads to compare");
  add_words(*command, "--facets", study_facets(), args->facets, "Only these parts");
  add_integer(*command, "--repeat", args->repetitions, 0, kMostRepetitions,
              "Times to run the library on all rows, for the times; 0: not at all");
  add_integer(*command, "--threads", args->threads, 0, 1024, "0: as many as the machine has");
  command->add_option("--json", args->json, "Write everything to this file")->type_name("FILE");
  command->add_option("--csv", args->csv, "Write the means to this file")->type_name("FILE");
  command->callback([args, &chosen] { chosen = [args] { return study(*args); }; });
}

}  // namespace dosa::cli
