// SPDX-License-Identifier: Apache-2.0
// bench_guards: what the rounding guard costs. The same certificates with every rounding enclosed,
// as the engine uses them, and with the terms of real arithmetic alone, which is no bound of a
// computed score and exists only here. Exit status 1 where the guard raises survival by more than a
// tenth.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "guards_row.hpp"
#include "numeric/float_environment.hpp"
#include "workload.hpp"

namespace {

using namespace dosa::bench;

constexpr double kMostRaised = 0.10;

struct Arguments {
  std::vector<std::string> files, made;
  std::vector<int> widths = {8, 16, 32};
  std::int64_t keys = 131072;
  std::int64_t rows = 8;
  int topk = 2048;
  std::uint64_t seed = 1;
};

Arguments parse(CLI::App& app, int argc, char** argv) {
  Arguments arguments;
  app.add_option("FILE", arguments.files, "traces");
  app.add_option("--gen", arguments.made, "glm52:8:LAYER, glm52:16:LAYER, dsv32:16:LAYER, ...")
      ->delimiter(',');
  app.add_option("--widths", arguments.widths, "screening rows R', one of them an aggregate")
      ->delimiter(',');
  app.add_option("--keys", arguments.keys, "of made inputs");
  app.add_option("--rows", arguments.rows, "query rows, spread over the input");
  app.add_option("-k,--topk", arguments.topk);
  app.add_option("--seed", arguments.seed, "of made inputs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return arguments;
}

/// The most that the guard raises a survival, and the share of false survivors at the true K-th
/// score where they are enough to count.
struct Raised {
  double most = 0.0, most_false = 0.0;
};

struct Pair {
  Survival guarded, real;
};

void add(const Survival& x, double rows, Survival& sum) {
  sum.perfect += x.perfect / rows;
  sum.rising += x.rising / rows;
  sum.slack += x.slack / rows;
}

/// Every term that stands for a rounding is left out.
void leave_out(dosa::plan::Certificate&, dosa::plan::Envelope& envelope) {
  envelope.reconstruction = envelope.reference = envelope.screening = 0.0;
  envelope.low = envelope.floor = 0.0;
  envelope.growth = 1.0;
}

/// Means over the rows, one per width.
std::vector<Pair> measure(const dosa_problem& problem, const Arguments& arguments) {
  std::vector<Pair> means(arguments.widths.size());
  const std::int64_t rows = std::min(arguments.rows, problem.num_queries);
  for (std::int64_t n = 0; n < rows; ++n) {
    StudiedRow row(problem, (n + 1) * problem.num_queries / rows - 1);
    for (std::size_t w = 0; w < arguments.widths.size(); ++w) {
      dosa::plan::CertificateOptions options;
      options.retained = std::min(arguments.widths[w] - 1, problem.num_heads);
      const dosa::plan::Certificate certificate = row.certify(options);
      row.build(certificate);
      add(row.measure(true), static_cast<double>(rows), means[w].guarded);
      row.build(certificate, leave_out);
      add(row.measure(false), static_cast<double>(rows), means[w].real);
    }
  }
  return means;
}

/// Prints one line per width.
void report(const std::string& name, const dosa_problem& problem, const Arguments& arguments,
            Raised& raised) {
  constexpr double kEnough = 1e-3;  // of the keys
  const double winners = static_cast<double>(problem.topk) / static_cast<double>(problem.num_keys);
  const std::vector<Pair> means = measure(problem, arguments);
  for (std::size_t w = 0; w < means.size(); ++w) {
    const Survival& with = means[w].guarded;
    const Survival& without = means[w].real;
    const double perfect = with.perfect / without.perfect - 1;
    const double rising = with.rising / without.rising - 1;
    raised.most = std::max({raised.most, perfect, rising});
    const double others = without.perfect - winners;
    if (others > kEnough) {
      raised.most_false = std::max(raised.most_false, (with.perfect - without.perfect) / others);
    }
    std::printf("| %s | %d | %d | %.3f | %.3f | %+.2f%% | %.3f | %.3f | %+.2f%% | %.1e |\n",
                name.c_str(), problem.num_heads, arguments.widths[w], 100 * without.perfect,
                100 * with.perfect, 100 * perfect, 100 * without.rising, 100 * with.rising,
                100 * rising, with.slack - without.slack);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  CLI::App app("What the rounding guard costs in survival");
  const Arguments arguments = parse(app, argc, argv);
  const dosa::FloatEnvironment environment;
  std::printf(
      "| input | H | R' | true tau: real, %% | guarded, %% | raised | rising tau: real, %% | "
      "guarded, %% | raised | guard, sd |\n|---|---|---|---|---|---|---|---|---|---|\n");
  Raised raised;
  const auto visit = [&](const Workload& workload) {
    dosa_problem problem = workload.problem;
    problem.topk = arguments.topk;
    report(workload.name, problem, arguments, raised);
  };
  visit_workloads(arguments.files, arguments.made, arguments.rows, arguments.keys, arguments.seed,
                  visit);
  std::printf("\nthe guard raises survival by at most %.2f%%, false survivors by at most %.2f%%\n",
              100 * raised.most, 100 * raised.most_false);
  return raised.most <= kMostRaised ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return dosa::bench::run_program("bench_guards", 2, [&] { return run(argc, argv); });
}
