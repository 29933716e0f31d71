// SPDX-License-Identifier: Apache-2.0
#include "engine_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <thread>

#include "args.hpp"
#include "failure.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

constexpr std::array<Choice, 5> kModes = {{{"auto", DOSA_MODE_AUTO},
                                           {"base", DOSA_MODE_BASE},
                                           {"full", DOSA_MODE_FULL},
                                           {"screen", DOSA_MODE_SCREEN},
                                           {"dosa", DOSA_MODE_DOSA}}};
constexpr std::array<Choice, 2> kThresholds = {
    {{"rising", DOSA_THRESHOLD_RISING}, {"fixed", DOSA_THRESHOLD_FIXED}}};
constexpr std::array<Choice, 2> kForms = {
    {{"absolute", DOSA_INDEX_ABSOLUTE}, {"relative", DOSA_INDEX_RELATIVE}}};
constexpr std::array<Choice, 2> kOrders = {{{"id", DOSA_ORDER_ID}, {"score", DOSA_ORDER_SCORE}}};
constexpr std::array<Choice, 2> kRetains = {
    {{"uncertainty", DOSA_RETAIN_UNCERTAINTY}, {"strength", DOSA_RETAIN_STRENGTH}}};
constexpr std::array<Choice, 4> kAllowances = {{{"best", DOSA_ALLOWANCE_BEST},
                                                {"triangle", DOSA_ALLOWANCE_TRIANGLE},
                                                {"joint", DOSA_ALLOWANCE_JOINT},
                                                {"grouped", DOSA_ALLOWANCE_GROUPED}}};
constexpr std::array<Choice, 3> kGroups = {{{"2", 2}, {"4", 4}, {"8", 8}}};
constexpr std::array<Choice, 5> kAggregates = {{{"support", DOSA_AGGREGATE_SUPPORT},
                                                {"two", DOSA_AGGREGATE_TWO},
                                                {"absolute", DOSA_AGGREGATE_ABSOLUTE},
                                                {"all", DOSA_AGGREGATE_ALL},
                                                {"none", DOSA_AGGREGATE_NONE}}};
constexpr std::array<Choice, 3> kStatistics = {{{"hard", DOSA_STATISTICS_HARD},
                                                {"random", DOSA_STATISTICS_RANDOM},
                                                {"seeds", DOSA_STATISTICS_SEEDS}}};
constexpr std::array<Choice, 5> kModels = {{{"default", DOSA_MODEL_DEFAULT},
                                            {"ieee", DOSA_MODEL_IEEE},
                                            {"sm90", DOSA_MODEL_SM90},
                                            {"mma_f16", DOSA_MODEL_MMA_F16},
                                            {"mma_fp8", DOSA_MODEL_MMA_FP8}}};

constexpr std::array<Choice, 2> kBackends = {{{"cpu", kCpu}, {"cuda", kCuda}}};

constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kLeastWorkspaceMib = 16;
constexpr std::int64_t kMostWorkspaceMib = std::int64_t{1} << 20;
constexpr int kMibShift = 20;
constexpr std::uint64_t kDeviceWorkspace = std::uint64_t{2} << 30;  // dosa_cuda_options_init()

/// What OpenMP would start; asked for explicitly so that the reports can say it.
std::int32_t default_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const long wanted = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (wanted > 0 && wanted <= kMostThreads) {
    return static_cast<std::int32_t>(wanted);
  }
  const unsigned available = std::thread::hardware_concurrency();
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(available, 1, kMostThreads));
}

void add_certificate_options(CLI::App& app, EngineArgs& args) {
  dosa_options& options = args.options;
  const char* group = "Certificate";
  add_choice(app, "--retain", kRetains, options.retain, "Rule for the retained negative heads")
      ->group(group);
  app.add_flag("--no-projection", args.no_projection,
               "Omitted positive heads lean on no retained head")
      ->group(group);
  add_choice(app, "--allowance", kAllowances, options.allowance,
             "Allowance for omitted positive heads")
      ->group(group);
  add_choice(app, "--allowance-groups", kGroups, options.allowance_groups,
             "Coordinate groups of --allowance grouped")
      ->group(group);
  add_choice(app, "--aggregate", kAggregates, options.aggregate,
             "What is subtracted for omitted negative heads")
      ->group(group);
  add_choice(app, "--statistics", kStatistics, options.statistics,
             "Keys on which activity is measured")
      ->group(group);
}

}  // namespace

EngineArgs::EngineArgs() {
  check(dosa_options_init(&options, sizeof options));
  workspace_mib = static_cast<std::int64_t>(options.workspace_limit >> kMibShift);
}

dosa_options EngineArgs::resolved() const {
  dosa_options result = options;
  result.projection = no_projection ? 0 : 1;
  result.workspace_limit = static_cast<std::uint64_t>(workspace_mib) << kMibShift;
  result.threads = options.threads == 0 ? default_threads() : options.threads;
  return result;
}

dosa_options EngineArgs::resolved_for_device() const {
  dosa_options result = resolved();
  if (result.workspace_limit == options.workspace_limit) result.workspace_limit = kDeviceWorkspace;
  return result;
}

dosa_problem EngineArgs::problem(const io::Trace& from) const {
  dosa_problem result = from.problem();
  result.topk = topk;
  if (options.heads > result.num_heads) {
    throw Failure("--heads", std::to_string(options.heads),
                  fmt::format("at most H = {}", result.num_heads));
  }
  return result;
}

void add_backend(CLI::App& app, std::int32_t& backend) {
  add_choice(app, "--backend", kBackends, backend,
             "Engine: this processor or a GPU (see --score-model)");
}

void add_score_model(CLI::App& app, std::int32_t& model) {
  add_choice(app, "--score-model", kModels, model,
             "How dot products are rounded; default: ieee, or what the GPU does best");
}

void add_engine_options(CLI::App& app, EngineArgs& args) {
  dosa_options& options = args.options;
  add_input(app, args.trace, "TRACE", "Inputs: q, k, k_scale, weights, k_start, k_end");
  add_integer(app, "-k,--topk", args.topk, 1, DOSA_MAX_TOPK, "Keys to select per query");
  add_choice(app, "--mode", kModes, options.mode, "What is computed; the answer is the same");
  add_choice(app, "--threshold", kThresholds, options.threshold, "When the threshold may change");
  add_integer(app, "--heads", options.heads, 0, DOSA_MAX_HEADS, "Retained heads; 0: chosen");
  add_choice(app, "--form", kForms, options.index_form, "Ids count from key 0 or from k_start");
  add_choice(app, "--order", kOrders, options.order, "Ascending ids or descending scores");
  add_integer(app, "--forced-first", options.forced_first, 0, std::numeric_limits<int>::max(),
              "First keys of a row that are always selected");
  add_integer(app, "--forced-last", options.forced_last, 0, std::numeric_limits<int>::max(),
              "Last keys of a row that are always selected");
  add_integer(app, "--threads", options.threads, 0, kMostThreads, "0: as many as the machine has");
  add_integer(app, "--workspace-mib", args.workspace_mib, kLeastWorkspaceMib, kMostWorkspaceMib,
              "Most scratch memory");
  add_score_model(app, options.score_model);
  add_certificate_options(app, args);
}

nlohmann::ordered_json options_json(const dosa_options& options) {
  return {{"mode", choice_name(kModes, options.mode)},
          {"threshold", choice_name(kThresholds, options.threshold)},
          {"heads", options.heads},
          {"form", choice_name(kForms, options.index_form)},
          {"order", choice_name(kOrders, options.order)},
          {"forced_first", options.forced_first},
          {"forced_last", options.forced_last},
          {"threads", options.threads},
          {"workspace_mib", options.workspace_limit >> kMibShift},
          {"retain", choice_name(kRetains, options.retain)},
          {"projection", options.projection != 0},
          {"allowance", choice_name(kAllowances, options.allowance)},
          {"allowance_groups", options.allowance_groups},
          {"aggregate", choice_name(kAggregates, options.aggregate)},
          {"statistics", choice_name(kStatistics, options.statistics)},
          {"score_model", choice_name(kModels, options.score_model)}};
}

std::string_view form_name(const dosa_options& options) {
  return choice_name(kForms, options.index_form);
}

std::string_view order_name(const dosa_options& options) {
  return choice_name(kOrders, options.order);
}

std::string mode_text(const dosa_options& options) {
  return fmt::format("{}, {} threshold", choice_name(kModes, options.mode),
                     choice_name(kThresholds, options.threshold));
}

nlohmann::ordered_json shape_json(const dosa_problem& problem) {
  return {{"queries", problem.num_queries},
          {"keys", problem.num_keys},
          {"heads", problem.num_heads},
          {"head_dim", problem.head_dim},
          {"topk", problem.topk}};
}

std::string shape_text(const dosa_problem& problem) {
  return fmt::format("{} rows, {} keys, {} heads of {}, K = {}", grouped(problem.num_queries),
                     grouped(problem.num_keys), problem.num_heads, problem.head_dim,
                     grouped(problem.topk));
}

std::vector<std::byte> make_workspace(const dosa_problem& problem, const dosa_options& options) {
  std::size_t bytes = 0;
  check(dosa_workspace_bytes(&problem, &options, &bytes));
  return std::vector<std::byte>(bytes);
}

}  // namespace dosa::cli
