// SPDX-License-Identifier: Apache-2.0
#include "shrink.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/output_file.hpp"
#include "io/trace.hpp"

namespace dosa::fuzz {
namespace {

using oracle::Problem;

/// `values` is (outer, extent, inner); [begin, end) of the extent is left out.
template <typename Element>
std::vector<Element> without(const std::vector<Element>& values, std::int64_t outer,
                             std::int64_t extent, std::int64_t inner, std::int64_t begin,
                             std::int64_t end) {
  std::vector<Element> rest;
  for (std::int64_t o = 0; o < outer; ++o) {
    const auto row = values.begin() + o * extent * inner;
    rest.insert(rest.end(), row, row + begin * inner);
    rest.insert(rest.end(), row + end * inner, row + extent * inner);
  }
  return rest;
}

/// Tries to leave out runs of `extent` units, half of them at first, then ever fewer.
template <typename Cut>
bool cut_runs(Problem& problem, std::int64_t extent, int& tries,
              const std::function<bool(const Problem&)>& shows, const Cut& cut) {
  bool smaller = false;
  for (std::int64_t run = (extent + 1) / 2; run >= 1 && extent > 0; run /= 2) {
    for (std::int64_t end = extent; end > 0 && tries > 0; end -= run) {
      const std::int64_t begin = std::max<std::int64_t>(0, end - run);
      Problem rest = cut(problem, begin, end);
      --tries;
      if (!shows(rest)) continue;
      problem = std::move(rest);
      extent -= end - begin;
      smaller = true;
    }
  }
  return smaller;
}

bool lower_topk(Problem& problem, int& tries, const std::function<bool(const Problem&)>& shows) {
  bool smaller = false;
  for (int step = problem.topk / 2; step >= 1 && tries > 0; step /= 2) {
    while (problem.topk > step && tries-- > 0) {
      Problem rest = problem;
      rest.topk -= step;
      if (!shows(rest)) break;
      problem = std::move(rest);
      smaller = true;
    }
  }
  return smaller;
}

}  // namespace

Problem without_rows(const Problem& problem, std::int64_t begin, std::int64_t end) {
  Problem rest = problem;
  const std::int64_t rows = problem.num_queries;
  const std::int64_t width = static_cast<std::int64_t>(problem.num_heads) * problem.head_dim;
  rest.num_queries -= end - begin;
  rest.q = without(problem.q, 1, rows, width, begin, end);
  rest.weights = without(problem.weights, 1, rows, problem.num_heads, begin, end);
  if (!problem.start.empty()) rest.start = without(problem.start, 1, rows, 1, begin, end);
  if (!problem.end.empty()) rest.end = without(problem.end, 1, rows, 1, begin, end);
  return rest;
}

Problem without_keys(const Problem& problem, std::int64_t begin, std::int64_t end) {
  Problem rest = problem;
  rest.num_keys -= end - begin;
  rest.k = without(problem.k, 1, problem.num_keys, problem.head_dim, begin, end);
  rest.k_scale = without(problem.k_scale, 1, problem.num_keys, 1, begin, end);
  for (std::vector<std::int32_t>* edges : {&rest.start, &rest.end}) {
    for (std::int32_t& edge : *edges) {
      const std::int64_t gone = std::clamp<std::int64_t>(edge, begin, end) - begin;
      edge = static_cast<std::int32_t>(edge - gone);
    }
  }
  return rest;
}

Problem without_heads(const Problem& problem, int begin, int end) {
  Problem rest = problem;
  rest.num_heads -= end - begin;
  rest.q = without(problem.q, problem.num_queries, problem.num_heads, problem.head_dim, begin, end);
  rest.weights = without(problem.weights, problem.num_queries, problem.num_heads, 1, begin, end);
  return rest;
}

Problem without_coordinates(const Problem& problem, int begin, int end) {
  Problem rest = problem;
  rest.head_dim -= 16 * (end - begin);
  const int parts = problem.head_dim / 16;
  rest.q = without(problem.q, problem.num_queries * problem.num_heads, parts, 16, begin, end);
  rest.k = without(problem.k, problem.num_keys, parts, 16, begin, end);
  return rest;
}

Problem shrink(Problem problem, const std::function<bool(const Problem&)>& shows, int tries) {
  // At least one head and 16 coordinates stay.
  const auto heads = [](const Problem& p, std::int64_t begin, std::int64_t end) {
    return end - begin < p.num_heads
               ? without_heads(p, static_cast<int>(begin), static_cast<int>(end))
               : p;
  };
  const auto coordinates = [](const Problem& p, std::int64_t begin, std::int64_t end) {
    return 16 * (end - begin) < p.head_dim
               ? without_coordinates(p, static_cast<int>(begin), static_cast<int>(end))
               : p;
  };
  bool smaller = true;
  while (smaller && tries > 0) {
    smaller = cut_runs(problem, problem.num_queries, tries, shows, without_rows);
    smaller |= cut_runs(problem, problem.num_keys, tries, shows, without_keys);
    if (problem.num_heads > 1) {
      smaller |= cut_runs(problem, problem.num_heads, tries, shows, heads);
    }
    if (problem.head_dim > 16) {
      smaller |= cut_runs(problem, problem.head_dim / 16, tries, shows, coordinates);
    }
    smaller |= lower_topk(problem, tries, shows);
  }
  return problem;
}

namespace {

/// The options of the command line that stand for those of a call; forms that need arrays do not
/// change which keys are selected and are left out.
std::string command_options(const dosa_options& o) {
  static constexpr const char* kModes[] = {"auto", "base", "full", "screen", "dosa"};
  static constexpr const char* kAllowances[] = {"best", "triangle", "joint", "grouped"};
  static constexpr const char* kAggregates[] = {"support", "two", "absolute", "all", "none"};
  static constexpr const char* kStatistics[] = {"hard", "random", "seeds"};
  std::string text =
      std::string(" --mode ") + kModes[o.mode] + " --threshold " +
      (o.threshold == DOSA_THRESHOLD_FIXED ? "fixed" : "rising") + " --heads " +
      std::to_string(o.heads) + " --threads " + std::to_string(o.threads) + " --retain " +
      (o.retain == DOSA_RETAIN_STRENGTH ? "strength" : "uncertainty") + " --allowance " +
      kAllowances[o.allowance] + " --allowance-groups " + std::to_string(o.allowance_groups) +
      " --aggregate " + kAggregates[o.aggregate] + " --statistics " + kStatistics[o.statistics] +
      " --order " + (o.order == DOSA_ORDER_SCORE ? "score" : "id");
  if (o.projection == 0) text += " --no-projection";
  if (o.forced_first > 0) text += " --forced-first " + std::to_string(o.forced_first);
  if (o.forced_last > 0) text += " --forced-last " + std::to_string(o.forced_last);
  return text;
}

}  // namespace

std::string write_trace(const Problem& problem, const dosa_options& options,
                        const std::string& path) {
  io::TraceData data;
  data.num_queries = problem.num_queries;
  data.num_keys = problem.num_keys;
  data.num_heads = problem.num_heads;
  data.head_dim = problem.head_dim;
  data.q = problem.q;
  data.k = problem.k;
  data.k_scale = problem.k_scale;
  data.weights = problem.weights;
  data.k_start = problem.start;
  data.k_end = problem.end;
  data.k_start.resize(static_cast<std::size_t>(problem.num_queries), 0);
  data.k_end.resize(static_cast<std::size_t>(problem.num_queries),
                    static_cast<std::int32_t>(problem.num_keys));
  const std::string command =
      "dosa verify " + path + " -k " + std::to_string(problem.topk) + command_options(options);
  io::OutputFile file(path);
  file.commit(data.tensors(), {{"command", command}});
  return command;
}

}  // namespace dosa::fuzz
