// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "engine_options.hpp"
#include "study_result.hpp"

namespace dosa::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A number, or null where there is none.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// A plan in the words of the command line.
Json plan_json(const StudyPlan& plan) {
  dosa_options options{};
  options.heads = plan.certificate.retained;
  options.retain = plan.certificate.retain;
  options.projection = plan.certificate.projection ? 1 : 0;
  options.allowance = plan.certificate.allowance;
  options.allowance_groups = plan.certificate.groups;
  options.aggregate = plan.certificate.aggregate;
  options.statistics = plan.statistics;
  const Json words = options_json(options);
  Json json = Json::object();
  for (const char* name : {"heads", "retain", "projection", "allowance", "allowance_groups",
                           "aggregate", "statistics"}) {
    json[name] = words[name];
  }
  json["seeds_age_rows"] = plan.age;
  return json;
}

Json case_json(const StudyResult& result, std::size_t at) {
  const StudyCase& one = result.cases[at];
  Json json = {{"facet", one.facet}, {"name", one.name}, {"options", plan_json(one.plan)}};
  for (std::size_t m = 0; m < kNumMetrics; ++m) {
    json[metric_names()[m]] = number(result.mean(at, static_cast<Metric>(m)));
  }
  Json survivors = Json::array();
  for (std::size_t n = 0; n < result.rows.size(); ++n) {
    const double share = result.metrics[at][n][static_cast<std::size_t>(Metric::kSurvivalFixed)];
    survivors.push_back(std::isnan(share)
                            ? Json(nullptr)
                            : Json(std::llround(share * static_cast<double>(result.visible[n]))));
  }
  json["survivors_fixed"] = survivors;
  return json;
}

Json run_json(const EngineRun& run) {
  return {{"name", run.name},
          {"options", options_json(run.options)},
          {"seconds", run.median()},
          {"samples_s", run.seconds},
          {"spread", run.spread()},
          {"repetitions", run.seconds.size()},
          {"visible", run.stats.visible},
          {"screened", run.stats.screened},
          {"fully_scored", run.stats.fully_scored},
          {"rounds", run.stats.rounds},
          {"mean_slack", run.stats.mean_slack},
          {"mean_deficit", number(run.stats.mean_deficit)},
          {"identical", run.identical}};
}

Json result_json(const StudyResult& result) {
  const StudyInput& input = result.input;
  Json json = {{"name", input.name},
               {"source", input.source},
               {"group", input.group},
               {"layer", input.layer < 0 ? Json(nullptr) : Json(input.layer)},
               {"domain", input.domain.empty() ? Json(nullptr) : Json(input.domain)},
               {"shape", shape_json(input.problem)},
               {"retained", result.retained},
               {"row_tokens", result.row_tokens},
               {"rows", result.rows},
               {"visible", result.visible},
               {"positive_heads", number(result.positive)},
               {"over_retained", number(result.over_retained)},
               {"above_fixed", number(result.above_fixed)},
               {"near_zero", number(result.near_zero)},
               {"violations", result.violations}};
  json["cases"] = Json::array();
  for (std::size_t n = 0; n < result.cases.size(); ++n)
    json["cases"].push_back(case_json(result, n));
  json["trajectories"] = Json::array();
  for (const auto& [name, trajectory] : result.trajectories) {
    json["trajectories"].push_back(
        {{"name", name}, {"deficit", trajectory.deficit}, {"scored", trajectory.scored}});
  }
  json["runs"] = Json::array();
  for (const EngineRun& run : result.runs) json["runs"].push_back(run_json(run));
  return json;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "";
}

std::string csv_head(const StudyResult& result) {
  const StudyInput& input = result.input;
  return fmt::format("{},{},{},{},{},{},{},{}", quoted(input.name), quoted(input.source),
                     quoted(input.group), input.layer < 0 ? "" : std::to_string(input.layer),
                     input.domain, input.problem.num_heads, input.problem.num_keys,
                     input.problem.topk);
}

}  // namespace

Json study_json(const std::vector<StudyResult>& results) {
  Json json = {
      {"study", 1}, {"model", "ieee"}, {"simd", dosa_simd_target()}, {"version", dosa_version()}};
  json["units"] = {{"survival, scored", "share of visible keys"},
                   {"slack, deficit", "standard deviations of a row's scores"},
                   {"seconds", "wall time of one call over all rows of the input"}};
  json["inputs"] = Json::array();
  for (const StudyResult& result : results) json["inputs"].push_back(result_json(result));
  json["not_available"] = Json::array();
  for (const Unavailable& one : unavailable_cases()) {
    json["not_available"].push_back({{"what", one.what}, {"why", one.why}});
  }
  return json;
}

std::string study_csv(const std::vector<StudyResult>& results) {
  std::string text = "input,source,group,layer,domain,heads,keys,topk,facet,case,retained";
  for (const char* name : metric_names()) text += fmt::format(",{}", name);
  text += ",seconds,spread,fully_scored\n";
  for (const StudyResult& result : results) {
    const std::string head = csv_head(result);
    for (std::size_t n = 0; n < result.cases.size(); ++n) {
      const StudyCase& one = result.cases[n];
      text += fmt::format("{},{},{},{}", head, one.facet, quoted(one.name),
                          one.plan.certificate.retained);
      for (std::size_t m = 0; m < kNumMetrics; ++m) {
        text += ',' + csv_number(result.mean(n, static_cast<Metric>(m)));
      }
      text += ",,,\n";
    }
    for (const EngineRun& run : result.runs) {
      text +=
          fmt::format("{},library,{},{}{},{:.9g},{:.9g},{:.9g}\n", head, quoted(run.name),
                      run.options.heads, std::string(kNumMetrics, ','), run.median(), run.spread(),
                      static_cast<double>(run.stats.fully_scored) /
                          static_cast<double>(std::max<std::int64_t>(1, run.stats.visible)));
    }
  }
  return text;
}

}  // namespace dosa::cli
