// SPDX-License-Identifier: Apache-2.0
#include "explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "args.hpp"
#include "commands.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "io/trace.hpp"

namespace dosa::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainArgs {
  EngineArgs engine;
  std::int64_t row = 0;
  bool json = false;
};

/// The problem of one row of `all`.
dosa_problem single_row(const dosa_problem& all, std::int64_t row) {
  dosa_problem one = all;
  one.num_queries = 1;
  one.q += row * all.q_stride;
  one.weights += row * all.weights_stride;
  one.k_start += row;
  one.k_end += row;
  return one;
}

std::array<double, kQuantiles.size()> quantiles(std::vector<double>& values) {
  std::array<double, kQuantiles.size()> result{};
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < kQuantiles.size() && !values.empty(); ++i) {
    const double position = kQuantiles[i] / 100.0 * static_cast<double>(values.size() - 1);
    result[i] = values[static_cast<std::size_t>(std::llround(position))];
  }
  return result;
}

/// Runs the row, then takes its certificate, all its bounds and all its scores.
void ask_engine(Explanation& found, std::vector<float>& bounds, std::vector<float>& scores) {
  const dosa_problem& problem = found.problem;
  const dosa_options& options = found.options;
  std::vector<std::byte> workspace = make_workspace(problem, options);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(problem.topk));
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = indices.data();
  output.indices_stride = problem.topk;
  output.rows = &found.stats;
  check(dosa_topk(&problem, &options, &output, workspace.data(), workspace.size()));

  const auto keys = static_cast<std::size_t>(problem.num_keys);
  bounds.resize(std::max<std::size_t>(keys, 1));
  scores.resize(std::max<std::size_t>(keys, 1));
  found.certificate.struct_size = sizeof found.certificate;
  check(dosa_bounds(&problem, &options, 0, &found.certificate, bounds.data(), workspace.data(),
                    workspace.size()));
  check(dosa_scores(&problem, &options, 0, 1, scores.data(),
                    static_cast<std::int64_t>(scores.size()), workspace.data(), workspace.size()));
}

void measure(Explanation& found, const std::vector<float>& bounds,
             const std::vector<float>& scores) {
  std::vector<double> slacks;
  std::vector<double> finite_scores;
  for (std::int64_t key = found.start; key < found.end; ++key) {
    const float bound = bounds[static_cast<std::size_t>(key)];
    const float score = scores[static_cast<std::size_t>(key)];
    if (std::isfinite(score)) {
      finite_scores.push_back(double{score});
    }
    if (!std::isfinite(bound) || !std::isfinite(score)) {
      ++found.unbounded;
      continue;
    }
    ++found.bounded;
    slacks.push_back(double{bound} - double{score});
    found.under_threshold += bound < found.certificate.threshold ? 1 : 0;
    found.under_kth += bound < found.stats.kth_score ? 1 : 0;
  }
  found.outside = std::max<std::int64_t>(0, found.end - found.start - found.problem.topk);
  found.score_quantiles = quantiles(finite_scores);
  found.slack_quantiles = quantiles(slacks);
}

Explanation explain_row(const ExplainArgs& args) {
  const io::Trace trace = io::Trace::open(args.engine.trace);
  const dosa_problem all = args.engine.problem(trace);
  if (args.row >= all.num_queries) {
    throw Failure("--row", std::to_string(args.row),
                  fmt::format("a row below Q = {}", all.num_queries));
  }
  Explanation found;
  found.trace = args.engine.trace;
  found.row = args.row;
  found.problem = single_row(all, args.row);
  found.options = args.engine.resolved();
  found.start = std::clamp<std::int64_t>(*found.problem.k_start, 0, all.num_keys);
  found.end = std::clamp<std::int64_t>(*found.problem.k_end, found.start, all.num_keys);
  std::vector<float> bounds;
  std::vector<float> scores;
  ask_engine(found, bounds, scores);
  measure(found, bounds, scores);
  return found;
}

Json heads_json(const Explanation& found) {
  const dosa_certificate& certificate = found.certificate;
  Json heads = Json::array();
  for (int h = 0; h < found.problem.num_heads; ++h) {
    heads.push_back({{"head", h},
                     {"role", role_name(certificate.role[h])},
                     {"weight", certificate.weight[h]},
                     {"folded_weight", certificate.folded_weight[h]},
                     {"norm", certificate.norm[h]},
                     {"active", certificate.active[h]},
                     {"anchor", certificate.anchor[h]}});
  }
  return heads;
}

Json quantiles_json(const std::array<double, kQuantiles.size()>& values) {
  Json json = Json::object();
  for (std::size_t i = 0; i < values.size(); ++i) {
    json[fmt::format("{}%", kQuantiles[i])] = values[i];
  }
  return json;
}

Json explanation_json(const Explanation& found) {
  const dosa_certificate& certificate = found.certificate;
  return {{"trace", found.trace},
          {"row", found.row},
          {"shape", shape_json(found.problem)},
          {"options", options_json(found.options)},
          {"window", {found.start, found.end}},
          {"valid", certificate.valid != 0},
          {"retained", certificate.num_retained},
          {"omitted_positive", certificate.num_omitted_positive},
          {"aggregated", certificate.num_aggregated},
          {"ignored", certificate.num_ignored},
          {"screening_rows", certificate.screening_rows},
          {"allowance", certificate.allowance},
          {"guard", certificate.guard},
          {"certificate_threshold", certificate.threshold},
          {"kth_score", found.stats.kth_score},
          {"first_threshold", found.stats.first_threshold},
          {"last_threshold", found.stats.last_threshold},
          {"visible", found.stats.visible},
          {"screened", found.stats.screened},
          {"fully_scored", found.stats.fully_scored},
          {"rounds", found.stats.rounds},
          {"bounded", found.bounded},
          {"unbounded", found.unbounded},
          {"under_threshold", found.under_threshold},
          {"under_kth", found.under_kth},
          {"score_quantiles", quantiles_json(found.score_quantiles)},
          {"slack_quantiles", quantiles_json(found.slack_quantiles)},
          {"head", heads_json(found)}};
}

int explain(const ExplainArgs& args) {
  const Explanation found = explain_row(args);
  if (args.json) {
    fmt::print("{}\n", explanation_json(found).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", explanation_text(found));
  }
  return kSuccess;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("explain", "Say what the certificate of one row is and what it rejects");
  const auto args = std::make_shared<ExplainArgs>();
  add_engine_options(*command, args->engine);
  add_integer(*command, "--row", args->row, 0, std::numeric_limits<std::int64_t>::max(),
              "The query row")
      ->required();
  command->add_flag("--json", args->json, "Print the report as JSON");
  command->callback([args, &chosen] { chosen = [args] { return explain(*args); }; });
}

}  // namespace dosa::cli
