// SPDX-License-Identifier: Apache-2.0
// The exactness check of `dosa doctor`: the library against E1 (docs/math.md) in plain code.
#include "doctor_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "failure.hpp"
#include "io/gen_exact.hpp"
#include "io/gen_model.hpp"
#include "io/trace.hpp"

namespace dosa::cli {
namespace {

constexpr int kTopk = 100;

/// An e4m3 code in units of 2^-9, or NaN. A double holds every sum of products of them exactly.
double units_of(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? mantissa : std::ldexp(8 + mantissa, exponent - 1);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

std::vector<double> decoded(const std::uint8_t* codes, std::int64_t count) {
  std::vector<double> units(static_cast<std::size_t>(count));
  std::transform(codes, codes + count, units.begin(), units_of);
  return units;
}

/// max(0, q . k), rounded once to fp32; a NaN dot product counts as 0.
float activation(const double* q, const double* k, int head_dim) {
  double sums[4] = {};  // exact, so that their number does not matter
  for (int d = 0; d < head_dim; d += 4) {
    for (int n = 0; n < 4; ++n) sums[n] += q[d + n] * k[d + n];
  }
  const double dot = sums[0] + sums[1] + sums[2] + sums[3];
  return dot > 0 ? static_cast<float>(dot) * 0x1p-18F : 0.0F;
}

/// The fp32 chain of the `ieee` model (docs/numerics.md): eight running sums over h mod 8, of which
/// the second term is the one that is rounded as a product; then pairs, the scale, and the rest.
/// relu and weights (128), zero behind the real heads.
float chain(const float* relu, const float* weights, int heads, float k_scale) {
  const int padded = std::max(16, (heads + 7) / 8 * 8);
  float sums[8];
  for (int lane = 0; lane < 8; ++lane) {
    sums[lane] = relu[8 + lane] * weights[8 + lane];
    sums[lane] = std::fma(relu[lane], weights[lane], sums[lane]);
    for (int h = 16 + lane; h < padded; h += 8) {
      sums[lane] = std::fma(relu[h], weights[h], sums[lane]);
    }
  }
  float scaled[4];
  for (int n = 0; n < 4; ++n) scaled[n] = (sums[2 * n] + sums[2 * n + 1]) * k_scale;
  return (scaled[0] + scaled[1]) + (scaled[2] + scaled[3]);
}

/// Scores of the keys [begin, end) of one row.
std::vector<float> plain_scores(const dosa_problem& p, const std::vector<double>& keys,
                                std::int64_t row, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = static_cast<std::int64_t>(p.num_heads) * p.head_dim;
  const std::vector<double> query = decoded(p.q + row * p.q_stride, width);
  float weights[DOSA_MAX_HEADS] = {};
  std::copy_n(p.weights + row * p.weights_stride, p.num_heads, weights);
  std::vector<float> scores;
  for (std::int64_t key = begin; key < end; ++key) {
    float relu[DOSA_MAX_HEADS] = {};
    for (int h = 0; h < p.num_heads; ++h) {
      const std::int64_t head = static_cast<std::int64_t>(h) * p.head_dim;
      relu[h] = activation(query.data() + head, keys.data() + key * p.head_dim, p.head_dim);
    }
    scores.push_back(chain(relu, weights, p.num_heads, p.k_scale[key]));
  }
  return scores;
}

CheckedAnswer library_topk(const dosa_problem& problem, const dosa_options& options,
                           dosa_stats& stats) {
  CheckedAnswer answer;
  answer.indices.resize(static_cast<std::size_t>(problem.num_queries * problem.topk));
  answer.scores.resize(answer.indices.size());
  std::size_t bytes = 0;
  check(dosa_workspace_bytes(&problem, &options, &bytes));
  std::vector<std::byte> workspace(bytes);
  stats = {};
  stats.struct_size = sizeof stats;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = answer.indices.data();
  output.indices_stride = problem.topk;
  output.scores = answer.scores.data();
  output.scores_stride = problem.topk;
  output.stats = &stats;
  check(dosa_topk(&problem, &options, &output, workspace.data(), bytes));
  return answer;
}

dosa_problem problem_of(const io::TraceData& data) {
  dosa_problem problem = data.problem();
  problem.topk = kTopk;
  return problem;
}

/// More rows than go without a pilot, more keys than go without a sample, and no whole tiles.
std::vector<std::pair<std::string, io::TraceData>> check_problems() {
  io::ExactShape shape;
  shape.num_queries = 6;
  shape.num_keys = 4901;
  shape.seed = 1;
  io::GenShape modelled;
  modelled.queries = 6;
  modelled.keys = 4901;
  modelled.seed = 1;
  modelled.threads = 1;
  std::vector<std::pair<std::string, io::TraceData>> problems;
  problems.emplace_back("ties", io::make_residue(shape));
  problems.emplace_back("order-free sums", io::make_int(shape));
  problems.emplace_back("order-dependent sums", io::make_real(shape));
  problems.emplace_back("a modelled workload",
                        io::generate(io::glm52_model(16, 10, io::GenDomain::kEnglish), modelled));
  for (auto& [name, data] : problems) io::set_windows(data, io::Windows::kCausal, 0);
  return problems;
}

}  // namespace

CheckedAnswer plain_topk(const dosa_problem& p) {
  std::vector<double> keys;
  for (std::int64_t key = 0; key < p.num_keys; ++key) {
    const std::vector<double> units = decoded(p.k + key * p.k_stride, p.head_dim);
    keys.insert(keys.end(), units.begin(), units.end());
  }
  CheckedAnswer answer;
  for (std::int64_t row = 0; row < p.num_queries; ++row) {
    const std::int64_t begin = std::clamp<std::int64_t>(p.k_start[row], 0, p.num_keys);
    const std::int64_t end = std::clamp<std::int64_t>(p.k_end[row], begin, p.num_keys);
    const std::vector<float> scores = plain_scores(p, keys, row, begin, end);
    std::vector<std::size_t> best(scores.size());
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) {
      if (std::isnan(scores[a]) || std::isnan(scores[b])) {
        return std::isnan(scores[b]) && !std::isnan(scores[a]);
      }
      return scores[a] > scores[b];  // stable: equal scores keep the lower id first
    });
    best.resize(std::min(best.size(), static_cast<std::size_t>(p.topk)));
    std::sort(best.begin(), best.end());
    for (std::size_t n = 0; n < static_cast<std::size_t>(p.topk); ++n) {
      const bool real = n < best.size();
      answer.indices.push_back(
          real ? static_cast<std::int32_t>(best[n]) + static_cast<std::int32_t>(begin) : -1);
      answer.scores.push_back(real ? scores[best[n]] + 0.0F  // -0 is reported as +0
                                   : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return answer;
}

std::int64_t first_difference(const dosa_problem& problem, const CheckedAnswer& a,
                              const CheckedAnswer& b) {
  const auto cells = static_cast<std::size_t>(problem.num_queries * problem.topk);
  for (std::size_t n = 0; n < cells; ++n) {
    const float x = a.scores[n];
    const float y = b.scores[n];
    const bool same = std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
                      (std::isnan(x) && std::isnan(y));
    if (a.indices[n] != b.indices[n] || !same) {
      return static_cast<std::int64_t>(n) / problem.topk;
    }
  }
  return -1;
}

CheckReport check_exactness(std::int32_t threads) {
  const auto begin = std::chrono::steady_clock::now();
  CheckReport report;
  for (const auto& [name, data] : check_problems()) {
    const dosa_problem problem = problem_of(data);
    const CheckedAnswer expected = plain_topk(problem);
    ++report.problems;
    for (std::int32_t mode = DOSA_MODE_AUTO; mode <= DOSA_MODE_DOSA; ++mode) {
      for (const std::int32_t used : {1, threads}) {
        dosa_options options{};
        check(dosa_options_init(&options, sizeof options));
        options.mode = mode;
        options.threads = used;
        dosa_stats stats{};
        const CheckedAnswer answer = library_topk(problem, options, stats);
        ++report.calls;
        report.rows += stats.rows;
        report.screened += stats.screened;
        const std::int64_t row = first_difference(problem, expected, answer);
        if (row < 0 || !report.difference.empty()) continue;
        report.difference = fmt::format("{}, mode {}, {} threads: row {}", name, mode, used, row);
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  report.seconds = seconds.count();
  return report;
}

}  // namespace dosa::cli
