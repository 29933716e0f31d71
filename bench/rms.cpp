// SPDX-License-Identifier: Apache-2.0
// bench_rms: the paper's coefficient for the norm of a key, one number per query in place of a
// triangle or joint allowance and of the guard's sums of norms. Allowances and the guard are first
// summed per group of coordinates, E_g + |J_g|, and Cauchy-Schwarz over the groups gives
//   C = sqrt(sum_g (E_g + |J_g|)^2),   U = sum c [X]+ - [v.k]+ + C |k|,
// which is the RMS form: |k| is sqrt(D) times the RMS of a key. Compared in slack, survival and the
// time of planning with what the engine uses (docs/numerics.md).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "guards_row.hpp"
#include "numeric/float_environment.hpp"
#include "numeric/outward.hpp"
#include "workload.hpp"

namespace {

using namespace dosa::bench;
namespace plan = dosa::plan;

/// w_h |d_h,d| as upper ends of double intervals: the difference is off by 2^-52 of its terms.
std::vector<double> residuals(const StudiedRow& row, const plan::Certificate& certificate,
                              int dims) {
  std::vector<double> all;
  for (int h = 0; h < certificate.heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    if (certificate.role[at] != plan::Role::kProjected) continue;
    const int anchor = certificate.anchor[at];
    const double beta = certificate.beta[at];
    for (int d = 0; d < dims; ++d) {
      const double own = plan::query_unit(row.rows(), dims, h, d);
      const double other = anchor < 0 ? 0.0 : beta * plan::query_unit(row.rows(), dims, anchor, d);
      const double size = std::fabs(own - other) + 0x1p-51 * (std::fabs(own) + std::fabs(other));
      all.push_back(static_cast<double>(row.weights()[h]) * size);
    }
  }
  return all;
}

/// gamma_ref sum_h |w_h| |q_h,d| + gamma_s sum_r |c_r| |g_r,d|: N2 and N8 by coordinates.
std::vector<double> guard(const StudiedRow& row, int heads, int dims) {
  const plan::ScreenOperand& operand = row.operand();
  const double gamma_ref = dosa::gamma(plan::reference_roundings(heads));
  const double gamma_s = dosa::gamma(operand.rows + operand.groups + 6);
  std::vector<double> sums(static_cast<std::size_t>(dims));
  for (int d = 0; d < dims; ++d) {
    double score = 0.0;
    double bound = 0.0;
    for (int h = 0; h < heads; ++h) {
      score += std::fabs(static_cast<double>(row.weights()[h])) *
               std::abs(plan::query_unit(row.rows(), dims, h, d));
    }
    for (int r = 0; r < operand.rows; ++r) {
      const std::int32_t pair = operand.pairs[r * (dims / 2) + d / 2];
      const int stored = static_cast<std::int16_t>(d % 2 == 0 ? pair & 0xFFFF : pair >> 16);
      bound += std::fabs(static_cast<double>(operand.coefficient[r])) * std::abs(stored);
    }
    sums[static_cast<std::size_t>(d)] = gamma_ref * score + gamma_s * bound;
  }
  return sums;
}

/// C for groups of `width` coordinates; rounded up.
double coefficient(const std::vector<double>& residual, const std::vector<double>& guard,
                   int width) {
  const std::size_t dims = guard.size();
  double total = 0.0;
  for (std::size_t begin = 0; begin < dims; begin += static_cast<std::size_t>(width)) {
    const auto norm = [&](const double* x) {
      double squared = 0.0;
      for (int d = 0; d < width; ++d) squared += x[d] * x[d];
      return std::sqrt(squared);
    };
    double sum = norm(guard.data() + begin);
    for (std::size_t h = 0; h < residual.size(); h += dims)
      sum += norm(residual.data() + h + begin);
    total += sum * sum;
  }
  return dosa::outward(std::sqrt(total));
}

struct Form {
  const char* name;
  dosa_allowance allowance;
  int groups;     // of DOSA_ALLOWANCE_GROUPED
  int rms_width;  // coordinates per group of C; 0: the engine's terms
};

constexpr Form kForms[] = {
    {"triangle", DOSA_ALLOWANCE_TRIANGLE, 4, 0},
    {"joint", DOSA_ALLOWANCE_JOINT, 4, 0},
    {"best (the engine's)", DOSA_ALLOWANCE_BEST, 4, 0},
    {"grouped, 4", DOSA_ALLOWANCE_GROUPED, 4, 0},
    {"grouped, 8", DOSA_ALLOWANCE_GROUPED, 8, 0},
    {"RMS, 4 groups", DOSA_ALLOWANCE_TRIANGLE, 4, 32},
    {"RMS, 16 groups", DOSA_ALLOWANCE_TRIANGLE, 4, 8},
    {"RMS, coordinates", DOSA_ALLOWANCE_TRIANGLE, 4, 1},
};
constexpr std::size_t kNumForms = std::size(kForms);

struct Outcome {
  Survival survival;
  double allowance = 0.0;     // coefficient of |k| over that of the triangle
  double guard = 0.0;         // |J| over the engine's sums of norms
  double microseconds = 0.0;  // of planning one row
};

struct Arguments {
  std::vector<std::string> files, made;
  std::vector<int> retained = {3, 7, 15};
  std::int64_t keys = 65536;
  std::int64_t rows = 8;
  int topk = 2048;
  int repetitions = 0;
};

Arguments parse(CLI::App& app, int argc, char** argv) {
  Arguments arguments;
  app.add_option("FILE", arguments.files, "traces");
  app.add_option("--gen", arguments.made, "glm52:8:LAYER, dsv32:16:LAYER, ...")->delimiter(',');
  app.add_option("--retained", arguments.retained, "r,r,...")->delimiter(',');
  app.add_option("--keys", arguments.keys, "of made inputs");
  app.add_option("--rows", arguments.rows, "query rows, spread over the input");
  app.add_option("-k,--topk", arguments.topk);
  app.add_option("--repetitions", arguments.repetitions, "time planning, this often per row");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return arguments;
}

/// One row in one form: builds the operand, then measures it.
Outcome measure(StudiedRow& row, const dosa_problem& problem, const Form& form, int retained,
                int repetitions) {
  const int dims = problem.head_dim;
  plan::CertificateOptions options;
  options.retained = retained;
  options.allowance = form.allowance;
  options.groups = form.groups;
  Outcome outcome;
  const plan::Certificate certificate = row.certify(options);
  const plan::Envelope envelope = row.build(certificate);
  const double sums = envelope.reference + envelope.screening;
  double c = certificate.allowance + sums;
  const double triangle_and_sums = [&] {
    options.allowance = DOSA_ALLOWANCE_TRIANGLE;
    return row.certify(options).allowance + sums;
  }();
  options.allowance = form.allowance;
  outcome.guard = 1.0;
  if (form.rms_width > 0) {
    const std::vector<double> by_coordinate = guard(row, problem.num_heads, dims);
    c = coefficient(residuals(row, certificate, dims), by_coordinate, form.rms_width);
    outcome.guard = coefficient({}, by_coordinate, form.rms_width) / sums;
    row.build(certificate, [&](plan::Certificate& changed, plan::Envelope& terms) {
      changed.allowance = c;
      terms.reference = terms.screening = 0.0;
    });
  }
  outcome.allowance = c / triangle_and_sums;
  outcome.survival = row.measure(true);
  if (repetitions == 0) return outcome;
  const auto start = std::chrono::steady_clock::now();
  double sink = 0.0;
  for (int n = 0; n < repetitions; ++n) {
    const plan::Certificate again = row.certify(options);
    sink += row.build(again).strength;
    if (form.rms_width > 0) {
      sink += coefficient(residuals(row, again, dims), guard(row, problem.num_heads, dims),
                          form.rms_width);
    }
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  outcome.microseconds = sink > 0.0 ? time.count() / repetitions : 0.0;
  return outcome;
}

void report(const std::string& name, const dosa_problem& problem, const Arguments& arguments) {
  const std::int64_t rows = std::min(arguments.rows, problem.num_queries);
  for (const int retained : arguments.retained) {
    Outcome means[kNumForms];
    for (std::int64_t n = 0; n < rows; ++n) {
      StudiedRow row(problem, (n + 1) * problem.num_queries / rows - 1);
      for (std::size_t f = 0; f < kNumForms; ++f) {
        const Outcome one = measure(row, problem, kForms[f], retained, arguments.repetitions);
        const auto share = 1.0 / static_cast<double>(rows);
        means[f].survival.perfect += share * one.survival.perfect;
        means[f].survival.rising += share * one.survival.rising;
        means[f].survival.slack += share * one.survival.slack;
        means[f].allowance += share * one.allowance;
        means[f].guard += share * one.guard;
        means[f].microseconds += share * one.microseconds;
      }
    }
    for (std::size_t f = 0; f < kNumForms; ++f) {
      const Outcome& mean = means[f];
      std::printf("| %s | %d | %s | %.3f | %.3f | %.4f | %.3f | %.3f | %.1f |\n", name.c_str(),
                  retained, kForms[f].name, mean.allowance, mean.guard, mean.survival.slack,
                  100 * mean.survival.perfect, 100 * mean.survival.rising, mean.microseconds);
    }
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  CLI::App app("The RMS form of the allowances against the engine's");
  const Arguments arguments = parse(app, argc, argv);
  const dosa::FloatEnvironment environment;
  std::printf(
      "| input | r | form | C / triangle | guard / sums | slack, sd | true tau, %% | rising tau, "
      "%% | us per plan |\n|---|---|---|---|---|---|---|---|---|\n");
  const auto visit = [&](const Workload& workload) {
    dosa_problem problem = workload.problem;
    problem.topk = arguments.topk;
    report(workload.name, problem, arguments);
  };
  visit_workloads(arguments.files, arguments.made, arguments.rows, arguments.keys, 1, visit);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return dosa::bench::run_program("bench_rms", 2, [&] { return run(argc, argv); });
}
