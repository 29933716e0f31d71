// SPDX-License-Identifier: Apache-2.0
// bench_guards_sm90: what the rounding guard of the device's certificates costs, term by term. The
// same plans with all of the guard, with one term of it left out, and with none of it, which is no
// bound of a computed score; in double, on this processor.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "guards_sm90_row.hpp"
#include "workload.hpp"

namespace {

using namespace dosa::bench;

struct Arguments {
  std::vector<std::string> files, made;
  std::vector<int> widths = {8, 16, 24};
  std::int64_t keys = 131072;
  std::int64_t rows = 4;
  int share = 512;  // one key in so many is selected
};

Arguments parse(CLI::App& app, int argc, char** argv) {
  Arguments arguments;
  app.add_option("FILE", arguments.files, "traces");
  app.add_option("--gen", arguments.made, "glm52:8:LAYER, ...")->delimiter(',');
  app.add_option("--widths", arguments.widths, "screening rows R', two of them auxiliary")
      ->delimiter(',');
  app.add_option("--keys", arguments.keys, "of made inputs");
  app.add_option("--rows", arguments.rows, "query rows, spread over the input");
  app.add_option("--share", arguments.share, "one key in so many is selected");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return arguments;
}

/// A way to add the guard: the terms outside the aggregate's positive part and those inside.
struct Variant {
  const char* name;
  std::function<double(const GuardTerms&)> outside, inside;
  double share;  // of the aggregate that is not subtracted
};

const std::vector<Variant>& variants() {
  const auto none = [](const GuardTerms&) { return 0.0; };
  const auto outer = [](const GuardTerms& g) { return g.projected + g.sums; };
  const auto inner = [](const GuardTerms& g) { return g.heads + g.rows; };
  static const std::vector<Variant> all = {
      {"none", none, none, 0.0},
      {"one by one", [](const GuardTerms& g) { return g.singly + g.projected + g.sums; }, none,
       0.0},
      {"outside", [=](const GuardTerms& g) { return outer(g) + inner(g); }, none, 2 * kShare},
      {"all", outer, inner, 2 * kShare},
      {"no heads", outer, [](const GuardTerms& g) { return g.rows; }, kShare},
      {"no rows", outer, [](const GuardTerms& g) { return g.heads; }, kShare},
      {"no projected", [](const GuardTerms& g) { return g.sums; }, inner, 2 * kShare},
      {"no sums", [](const GuardTerms& g) { return g.projected; }, inner, 2 * kShare},
  };
  return all;
}

/// The row's keys: vectors, n(k), exact dot products with every head, scores.
struct Keys {
  std::vector<double> norm, dots, score;
  double kth = 0.0;
  std::vector<double> active;  // of each head on the best quarter of a sample without winners

  Keys(const dosa_problem& problem, std::int64_t row, const DeviceRow& query, int share) {
    const std::int64_t begin = problem.k_start[row];
    const std::int64_t end = std::min<std::int64_t>(problem.k_end[row], problem.num_keys);
    const std::size_t heads = query.q.size();
    for (std::int64_t i = begin; i < end; ++i) {
      const Vector key = decode_vector(problem.k + i * problem.k_stride);
      norm.push_back(std::max(dosa::bench::norm(key), 5 * power(key)));
      double sum = 0.0;
      for (std::size_t h = 0; h < heads; ++h) {
        dots.push_back(dot(query.q[h], key));
        sum += query.weight[h] * std::max(dots.back(), 0.0);
      }
      score.push_back(sum * static_cast<double>(problem.k_scale[i]));
    }
    std::vector<double> sorted = score;
    const auto kept = std::max<std::ptrdiff_t>(1, (end - begin) / share);
    std::nth_element(sorted.begin(), sorted.begin() + kept - 1, sorted.end(), std::greater<>());
    kth = sorted[static_cast<std::size_t>(kept - 1)];
    count_active(heads);
  }

  void count_active(std::size_t heads) {
    const std::size_t step = std::max<std::size_t>(1, score.size() / 8192);
    std::vector<std::size_t> sample;
    for (std::size_t i = 0; i < score.size(); i += step) {
      if (score[i] < kth) sample.push_back(i);
    }
    std::sort(sample.begin(), sample.end(),
              [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    sample.resize(std::max<std::size_t>(1, sample.size() / 4));
    active.assign(heads, 0.0);
    for (const std::size_t i : sample) {
      for (std::size_t h = 0; h < heads; ++h) {
        if (dots[i * heads + h] > 0) active[h] += 1 / static_cast<double>(sample.size());
      }
    }
  }
};

/// Adds a row's shares of survivors, by variant.
void count(const dosa_problem& problem, std::int64_t row, const DeviceRow& plan, const Keys& keys,
           double weight, std::vector<double>& survival) {
  const std::size_t heads = plan.q.size();
  for (std::size_t i = 0; i < keys.score.size(); ++i) {
    const double* const x = keys.dots.data() + i * heads;
    double base = plan.allowance * keys.norm[i];
    double y = 0.0;
    for (const int h : plan.retained) {
      base += plan.folded[static_cast<std::size_t>(h)] * std::max(x[h], 0.0);
    }
    for (const int h : plan.aggregated) y -= plan.weight[static_cast<std::size_t>(h)] * x[h];
    const auto scale =
        static_cast<double>(problem.k_scale[problem.k_start[row] + static_cast<std::int64_t>(i)]);
    for (std::size_t v = 0; v < variants().size(); ++v) {
      const Variant& variant = variants()[v];
      const double taken = y * (1 - variant.share) - variant.inside(plan.guard) * keys.norm[i];
      const double bound = base + variant.outside(plan.guard) * keys.norm[i] - std::max(taken, 0.0);
      if (bound * scale >= keys.kth) survival[v] += weight / static_cast<double>(keys.score.size());
    }
  }
}

void report(const std::string& name, const dosa_problem& problem, const Arguments& arguments) {
  const std::int64_t rows = std::min(arguments.rows, problem.num_queries);
  std::vector<std::vector<double>> survival(arguments.widths.size(),
                                            std::vector<double>(variants().size()));
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t row = (n + 1) * problem.num_queries / rows - 1;
    DeviceRow plan(problem, row);
    const Keys keys(problem, row, plan, arguments.share);
    for (std::size_t w = 0; w < arguments.widths.size(); ++w) {
      plan.plan(arguments.widths[w], keys.active);
      count(problem, row, plan, keys, 1 / static_cast<double>(rows), survival[w]);
    }
  }
  for (std::size_t w = 0; w < arguments.widths.size(); ++w) {
    std::printf("| %s | %d | %d | %.4f |", name.c_str(), problem.num_heads, arguments.widths[w],
                100 * survival[w][0]);
    for (std::size_t v = 1; v < variants().size(); ++v) {
      std::printf(" %+.1f%% |", 100 * (survival[w][v] / survival[w][0] - 1));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  CLI::App app("What each term of the device's rounding guard costs in survival");
  const Arguments arguments = parse(app, argc, argv);
  std::printf("| input | H | R' | no guard, %% |");
  for (std::size_t v = 1; v < variants().size(); ++v) std::printf(" %s |", variants()[v].name);
  std::printf("\n|---|---|---|---|");
  for (std::size_t v = 1; v < variants().size(); ++v) std::printf("---|");
  std::printf("\n");
  visit_workloads(
      arguments.files, arguments.made, arguments.rows, arguments.keys, 1,
      [&](const Workload& workload) { report(workload.name, workload.problem, arguments); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return dosa::bench::run_program("bench_guards_sm90", 2, [&] { return run(argc, argv); });
}
