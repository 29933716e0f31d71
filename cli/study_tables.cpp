// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "study_result.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

using Results = std::vector<const StudyResult*>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr const char* kLegend =
    "\nR' rows: retained heads and aggregates. survive: visible keys whose bound reaches the "
    "fixed\n"
    "or the true threshold; scored: those and the keys of the pool, by a fixed and by a rising\n"
    "threshold. slack: bound less score; deficit: true K-th score less threshold; both in "
    "standard\n"
    "deviations of the row's scores.\n";

std::string number_text(double value) {
  return std::isnan(value) ? "" : fmt::format("{:.2f}", value);
}

std::vector<Table::Align> columns(std::size_t left, std::size_t right) {
  std::vector<Table::Align> result(left, Table::Align::kLeft);
  result.insert(result.end(), right, Table::Align::kRight);
  return result;
}

/// Cases of one facet, means over the inputs of a group.
void facet_table(const std::string& facet, const Results& results, Table& table) {
  std::vector<std::string> names;
  for (const StudyResult* result : results) {
    for (const StudyCase& one : result->cases) {
      const bool known = std::find(names.begin(), names.end(), one.name) != names.end();
      if (one.facet == facet && !known) names.push_back(one.name);
    }
  }
  if (names.empty()) return;
  table.add({facet});
  for (const std::string& name : names) {
    const auto mean = [&](Metric metric) {
      return mean_over(results,
                       [&](const StudyResult& one) { return one.mean(facet, name, metric); });
    };
    table.add({"  " + name, fmt::format("{:.1f}", mean(Metric::kScreeningRows)),
               percent_text(mean(Metric::kSurvivalFixed)),
               percent_text(mean(Metric::kSurvivalTrue)), percent_text(mean(Metric::kScoredFixed)),
               percent_text(mean(Metric::kScoredRising)), number_text(mean(Metric::kSlack)),
               number_text(mean(Metric::kDeficitFixed)),
               number_text(mean(Metric::kDeficitRising))});
  }
}

std::string case_tables(const Results& results) {
  Table table(columns(1, 8));
  table.add({"", "R'", "survive", "survive", "scored", "scored", "slack", "deficit", "deficit"});
  table.add({"", "", "fixed", "true", "fixed", "rising", "", "fixed", "rising"});
  table.add({"", "rows", "%", "%", "%", "%", "sd", "sd", "sd"});
  for (const std::string& facet : study_facets()) facet_table(facet, results, table);
  return table.text();
}

/// Where inputs differ in layer or domain: survival of the components by layer and domain.
std::string layer_table(const Results& results) {
  std::set<std::pair<int, std::string>> cells;
  for (const StudyResult* one : results) cells.insert({one->input.layer, one->input.domain});
  if (cells.size() < 2) return "";
  Table table(columns(2, 6));
  table.add(
      {"layer", "domain", "full", "no aggr.", "all aggr.", "strength", "no proj.", "defaults"});
  table.add({"", "", "fixed %", "fixed %", "fixed %", "fixed %", "fixed %", "rising %"});
  for (const auto& [layer, domain] : cells) {
    Results here;
    std::copy_if(results.begin(), results.end(), std::back_inserter(here),
                 [&, layer = layer, &domain = domain](const StudyResult* one) {
                   return one->input.layer == layer && one->input.domain == domain;
                 });
    const auto mean = [&](const char* name, Metric metric) {
      return percent_text(mean_over(
          here, [&](const StudyResult& one) { return one.mean("components", name, metric); }));
    };
    table.add({layer < 0 ? "-" : std::to_string(layer), domain.empty() ? "-" : domain,
               mean("full certificate", Metric::kSurvivalFixed),
               mean("no aggregate", Metric::kSurvivalFixed),
               mean("aggregate all", Metric::kSurvivalFixed),
               mean("strength only", Metric::kSurvivalFixed),
               mean("no projection", Metric::kSurvivalFixed),
               mean("defaults", Metric::kScoredRising)});
  }
  return '\n' + table.text();
}

/// Sums of times over the inputs, against the faster of the two ways to score every key.
std::string engine_table(const Results& results) {
  if (results.front()->runs.empty()) return "";
  Table table(columns(1, 6));
  table.add({"library, all rows", "time", "+-", "of best", "scored %", "reductions/row", "ids"});
  const std::size_t count = results.front()->runs.size();
  std::vector<double> seconds(count, 0.0);
  for (const StudyResult* one : results) {
    for (std::size_t n = 0; n < count; ++n) seconds[n] += one->runs[n].median();
  }
  const double best = std::min(seconds[0], seconds[1]);  // base, full
  for (std::size_t n = 0; n < count; ++n) {
    double spread = 0.0;
    double visible = 0.0;
    double scored = 0.0;
    double rounds = 0.0;
    double rows = 0.0;
    bool identical = true;
    for (const StudyResult* one : results) {
      const EngineRun& run = one->runs[n];
      spread += run.spread();
      visible += static_cast<double>(run.stats.visible);
      scored += static_cast<double>(run.stats.fully_scored);
      rounds += static_cast<double>(run.stats.rounds);
      rows += static_cast<double>(run.stats.rows);
      identical = identical && run.identical;
    }
    table.add({"  " + results.front()->runs[n].name, duration(seconds[n]), duration(spread),
               fmt::format("{:.2f}x", best / seconds[n]), percent_text(scored / visible),
               fmt::format("{:.1f}", rounds / rows), identical ? "same" : "DIFFERENT"});
  }
  return '\n' + table.text();
}

std::string group_head(const std::string& group, const Results& results) {
  const StudyResult& first = *results.front();
  const dosa_problem& problem = first.input.problem;
  std::string text = fmt::format("{} ({} input{}; {})\n", group, results.size(),
                                 results.size() == 1 ? "" : "s", first.input.source);
  text += fmt::format(
      "{} heads of {}, {} keys, K = {}, r = {}; {} rows of each, {} token{} apart\n",
      problem.num_heads, problem.head_dim, grouped(problem.num_keys), grouped(problem.topk),
      first.retained, first.rows.size(), first.row_tokens, first.row_tokens == 1 ? "" : "s");
  const auto mean = [&](double StudyResult::*field) {
    return mean_over(results, [&](const StudyResult& one) { return one.*field; });
  };
  text += fmt::format(
      "{:.1f} heads are positive; more than r in {} % of all rows; {} % of the keys "
      "reach the fixed threshold\n\n",
      mean(&StudyResult::positive), percent_text(mean(&StudyResult::over_retained)),
      percent_text(mean(&StudyResult::above_fixed)));
  return text;
}

}  // namespace

double StudyResult::mean(std::size_t at, Metric metric) const {
  double sum = 0.0;
  double count = 0.0;
  for (const Metrics& row : metrics[at]) {
    const double value = row[static_cast<std::size_t>(metric)];
    if (!std::isfinite(value)) continue;
    sum += value;
    count += 1.0;
  }
  return count > 0.0 ? sum / count : kNaN;
}

double StudyResult::mean(const std::string& facet, const std::string& name, Metric metric) const {
  for (std::size_t n = 0; n < cases.size(); ++n) {
    if (cases[n].facet == facet && cases[n].name == name) return mean(n, metric);
  }
  return kNaN;
}

double mean_over(const Results& results, const std::function<double(const StudyResult&)>& value) {
  double sum = 0.0;
  double count = 0.0;
  for (const StudyResult* one : results) {
    const double found = value(*one);
    if (!std::isfinite(found)) continue;
    sum += found;
    count += 1.0;
  }
  return count > 0.0 ? sum / count : kNaN;
}

std::vector<std::pair<std::string, Results>> grouped_results(
    const std::vector<StudyResult>& results) {
  std::vector<std::pair<std::string, Results>> groups;
  for (const StudyResult& one : results) {
    const std::string name =
        fmt::format("{}, {} keys", one.input.group, grouped(one.input.problem.num_keys));
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == name; });
    if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
    found->second.push_back(&one);
  }
  return groups;
}

std::string percent_text(double share) {
  return std::isnan(share) ? "" : fmt::format("{:.2f}", 100 * share);
}

std::string study_tables(const std::vector<StudyResult>& results) {
  std::string text;
  for (const auto& [group, members] : grouped_results(results)) {
    text += (text.empty() ? "" : "\n") + group_head(group, members);
    text += case_tables(members) + layer_table(members) + engine_table(members);
  }
  text += kLegend;
  text += "\nNot available:\n";
  for (const Unavailable& one : unavailable_cases()) {
    text += fmt::format("  {}: {}\n", one.what, one.why);
  }
  return text;
}

}  // namespace dosa::cli
