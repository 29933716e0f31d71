// SPDX-License-Identifier: Apache-2.0
// What the paper publishes about GLM-5.2's indexer, beside what its model of docs/workloads.md
// gives.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "io/gen_model.hpp"
#include "study_result.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

using Results = std::vector<const StudyResult*>;

constexpr std::int64_t kManyRows = 2048;
constexpr std::int64_t kFewKeys = 8192;

io::GenDomain domain_of(const std::string& name) {
  if (name == "zh") return io::GenDomain::kChinese;
  return name == "code" ? io::GenDomain::kCode : io::GenDomain::kEnglish;
}

/// Share of many rows with more than r positive heads. Weights do not depend on the keys, so few of
/// those are made.
double over_retained(const StudyResult& result) {
  const StudyInput& input = result.input;
  const io::GenModel model = io::glm52_model(input.variant, input.layer, domain_of(input.domain));
  const io::TraceData data = io::generate(model, {kManyRows, kFewKeys, 1, input.seed, 0});
  std::int64_t over = 0;
  for (std::int64_t row = 0; row < kManyRows; ++row) {
    const float* weights = data.weights.data() + row * data.num_heads;
    const auto positive =
        std::count_if(weights, weights + data.num_heads, [](float w) { return w > 0; });
    over += positive > result.retained ? 1 : 0;
  }
  return static_cast<double>(over) / kManyRows;
}

struct Fact {
  const char* name;
  const char* published;
  std::function<std::string(const Results&)> measured;
};

std::string component(const Results& results, const char* name) {
  return percent_text(mean_over(results, [&](const StudyResult& one) {
    return one.mean("components", name, Metric::kSurvivalFixed);
  }));
}

/// Shares of keys that the full certificate rejects, of the results that `wanted` picks.
std::vector<double> pruned(const Results& results,
                           const std::function<bool(const StudyResult&)>& wanted) {
  std::vector<double> shares;
  for (const StudyResult* one : results) {
    if (!wanted(*one)) continue;
    shares.push_back(1 - one->mean("components", "full certificate", Metric::kSurvivalFixed));
  }
  std::sort(shares.begin(), shares.end());
  return shares;
}

std::string span(const std::vector<double>& shares) {
  if (shares.empty()) return "-";
  const std::string least = fmt::format("{:.1f}", 100 * shares.front());
  const std::string most = fmt::format("{:.1f}", 100 * shares.back());
  return least == most ? least : least + "-" + most;
}

std::string domains(const Results& results) {
  std::set<std::string> names;
  for (const StudyResult* one : results) names.insert(one->input.domain);
  std::string text;
  for (const std::string& name : names) {
    const std::vector<double> shares =
        pruned(results, [&](const StudyResult& one) { return one.input.domain == name; });
    double sum = 0.0;
    for (const double share : shares) sum += share;
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", name,
                        100 * sum / static_cast<double>(shares.size()));
  }
  return text;
}

const std::vector<Fact>& facts() {
  static const std::vector<Fact> kFacts = {
      {"rows with more than r positive heads", "0.42",
       [](const Results& results) { return percent_text(mean_over(results, over_retained)); }},
      {"survival, full certificate", "2.65",
       [](const Results& results) { return component(results, "full certificate"); }},
      {"survival, no negative aggregate", "95.06",
       [](const Results& results) { return component(results, "no aggregate"); }},
      {"survival, all negative heads aggregated", "4.06",
       [](const Results& results) { return component(results, "aggregate all"); }},
      {"survival, strength-only choice", "small effect",
       [](const Results& results) { return component(results, "strength only"); }},
      {"survival, no projection", "small effect",
       [](const Results& results) { return component(results, "no projection"); }},
      {"mean pruning by domain", "97.2-97.5", domains},
      {"pruned, first layer", "89-93",
       [](const Results& results) {
         return span(pruned(results, [](const StudyResult& one) { return one.input.layer == 0; }));
       }},
      {"pruned, the other layers", "above 95", [](const Results& results) {
         return span(pruned(results, [](const StudyResult& one) { return one.input.layer > 0; }));
       }}};
  return kFacts;
}

}  // namespace

std::string published_table(const std::vector<StudyResult>& results) {
  std::vector<std::pair<std::string, Results>> groups = grouped_results(results);
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const auto& group) {
                                const StudyInput& input = group.second.front()->input;
                                return input.group.rfind("glm52", 0) != 0 || input.layer < 0;
                              }),
               groups.end());
  if (groups.empty()) return "";
  std::vector<Table::Align> columns(2 + groups.size(), Table::Align::kRight);
  columns.front() = Table::Align::kLeft;
  Table table(columns);
  std::vector<std::string> head = {"% ", "published"};
  for (const auto& [name, members] : groups) head.push_back(name);
  table.add(head);
  for (const Fact& fact : facts()) {
    std::vector<std::string> line = {fact.name, fact.published};
    for (const auto& [name, members] : groups) line.push_back(fact.measured(members));
    table.add(line);
  }
  return "Published for GLM-5.2, and measured on generated inputs (real arithmetic's bound with "
         "its guard for rounding)\n\n" +
         table.text();
}

}  // namespace dosa::cli
