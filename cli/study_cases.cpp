// SPDX-License-Identifier: Apache-2.0
#include "study_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace dosa::cli {
namespace {

// So few retained heads that positive heads are left out, which is when allowances matter.
constexpr int kFewHeads = 4;

StudyPlan with_statistics(StudyPlan plan, dosa_statistics statistics) {
  plan.statistics = statistics;
  return plan;
}

StudyPlan with_aggregate(StudyPlan plan, dosa_aggregate aggregate) {
  plan.certificate.aggregate = aggregate;
  return plan;
}

StudyPlan with_allowance(StudyPlan plan, dosa_allowance allowance, int groups = 4) {
  plan.certificate.allowance = allowance;
  plan.certificate.groups = groups;
  return plan;
}

void add_allowances(int retained, std::vector<StudyCase>& cases) {
  const StudyPlan plan = default_plan(retained);
  const auto add = [&](const std::string& name, const StudyPlan& varied) {
    cases.push_back({"allowances", fmt::format("{}, r = {}", name, retained), varied});
  };
  add("triangle", with_allowance(plan, DOSA_ALLOWANCE_TRIANGLE));
  add("joint", with_allowance(plan, DOSA_ALLOWANCE_JOINT));
  add("smaller of both", plan);
  for (const int groups : {2, 4, 8}) {
    add(fmt::format("{} groups", groups), with_allowance(plan, DOSA_ALLOWANCE_GROUPED, groups));
  }
}

}  // namespace

bool same_plan(const StudyPlan& a, const StudyPlan& b) {
  const plan::CertificateOptions& x = a.certificate;
  const plan::CertificateOptions& y = b.certificate;
  return x.retained == y.retained && x.retain == y.retain && x.projection == y.projection &&
         x.allowance == y.allowance && x.groups == y.groups && x.aggregate == y.aggregate &&
         a.statistics == b.statistics && a.age == b.age;
}

StudyPlan paper_plan(int retained) {
  StudyPlan plan;
  plan.certificate.retained = retained;
  plan.certificate.allowance = DOSA_ALLOWANCE_TRIANGLE;
  plan.statistics = DOSA_STATISTICS_SEEDS;
  return plan;
}

StudyPlan default_plan(int retained) {
  StudyPlan plan;
  plan.certificate.retained = retained;
  return plan;
}

std::vector<StudyCase> component_cases(int retained) {
  const std::string facet = "components";
  const StudyPlan full = paper_plan(retained);
  StudyPlan strength = full;
  strength.certificate.retain = DOSA_RETAIN_STRENGTH;
  StudyPlan no_projection = full;
  no_projection.certificate.projection = false;
  return {{facet, "full certificate", full},
          {facet, "no aggregate", with_aggregate(full, DOSA_AGGREGATE_NONE)},
          {facet, "aggregate all", with_aggregate(full, DOSA_AGGREGATE_ALL)},
          {facet, "strength only", strength},
          {facet, "no projection", no_projection}};
}

std::vector<StudyCase> study_cases(const StudyScope& scope) {
  const int retained = scope.retained;
  std::vector<StudyCase> cases = component_cases(retained);
  const StudyPlan plan = default_plan(retained);
  cases.push_back({"components", "defaults", plan});
  for (const int width : scope.widths) {
    if (width > scope.heads) continue;
    cases.push_back({"retained", fmt::format("paper's rules, r = {}", width), paper_plan(width)});
  }
  for (const int width : scope.widths) {
    if (width > scope.heads) continue;
    cases.push_back({"retained", fmt::format("defaults, r = {}", width), default_plan(width)});
  }
  const auto add = [&](const char* facet, const char* name, const StudyPlan& varied) {
    cases.push_back({facet, name, varied});
  };
  add("statistics", "of the seeds", with_statistics(plan, DOSA_STATISTICS_SEEDS));
  add("statistics", "of random keys", with_statistics(plan, DOSA_STATISTICS_RANDOM));
  add("statistics", "of hard keys", plan);
  add("aggregates", "one", plan);
  add("aggregates", "two", with_aggregate(plan, DOSA_AGGREGATE_TWO));
  add("aggregates", "absolute-value form", with_aggregate(plan, DOSA_AGGREGATE_ABSOLUTE));
  add_allowances(retained, cases);
  if (retained > kFewHeads) add_allowances(kFewHeads, cases);
  for (const int age : scope.ages) {
    StudyPlan aged = plan;
    aged.age = age;
    const std::int64_t tokens = age * scope.row_tokens;
    cases.push_back({"seeds", fmt::format("{} token{} old", tokens, tokens == 1 ? "" : "s"), aged});
  }
  add("seeds", "of the first row", plan);
  return cases;
}

const std::vector<std::string>& study_facets() {
  static const std::vector<std::string> kFacets = {"components", "retained",   "statistics",
                                                   "aggregates", "allowances", "seeds"};
  return kFacets;
}

const std::vector<Unavailable>& unavailable_cases() {
  static const std::vector<Unavailable> kList = {
      {"one or two FP8 rows per aggregate",
       "this engine stores an aggregate as one row of int16, its rounding enclosed (N5); FP8 rows "
       "exist in the device engine only"}};
  return kList;
}

}  // namespace dosa::cli
