// SPDX-License-Identifier: Apache-2.0
//
// The library's bound against the library's score and against the real number both stand for:
// U >= s for every pair, under every option, on random, adversarial and trained inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle/rational.hpp"
#include "oracle/trial.hpp"

namespace dosa::oracle {
namespace {

const bool kTrainedLoaded = load_trained_input(DOSA_TEST_DATA "/code_small.safetensors");

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Count {
  std::int64_t pairs = 0;
  std::int64_t bounded = 0;      // pairs with a finite bound
  std::int64_t by_fraction = 0;  // real scores that needed rational arithmetic to be told apart
};

/// Real scores of one row (E1), in extended precision with an error bound.
class RealScores {
 public:
  RealScores(const Problem& problem, std::int64_t row) : problem_(problem), row_(row) {
    for (int h = 0; h < problem.num_heads; ++h) {
      const std::int64_t head = row * problem.num_heads + h;
      heads_.push_back(decode(problem.q.data() + head * problem.head_dim, problem.head_dim));
    }
  }

  /// Whether bound >= the real score of `key`.
  [[nodiscard]] bool below(float bound, std::int64_t key, Count& count) const {
    const Vector k = decode(problem_.k.data() + key * problem_.head_dim, problem_.head_dim);
    long double sum = 0;
    long double magnitude = 0;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const std::int64_t units = exact_dot(heads_[h], k);
      if (k.nan || heads_[h].nan || units <= 0) continue;
      const auto weight = problem_.weights[static_cast<std::size_t>(row_) * heads_.size() + h];
      const long double term = static_cast<long double>(weight) * static_cast<long double>(units);
      sum += term;
      magnitude += std::fabs(term);
    }
    const long double scale =
        std::ldexp(static_cast<long double>(problem_.k_scale[static_cast<std::size_t>(key)]), -18);
    // Each term and each addition rounds once, to 64 bits.
    const long double error =
        static_cast<long double>(2 * heads_.size() + 4) * 0x1p-63L * magnitude * scale;
    const long double margin = static_cast<long double>(bound) - sum * scale;
    if (margin > error) return true;
    if (margin < -error) return false;
    ++count.by_fraction;
    return Rational(static_cast<double>(bound)) >= real_score(problem_, row_, key);
  }

 private:
  const Problem& problem_;
  std::int64_t row_;
  std::vector<Vector> heads_;
};

std::string describe(const char* what, std::int64_t row, std::int64_t key, float bound,
                     float score) {
  std::ostringstream text;
  text.precision(9);
  text << "row " << row << " key " << key << ": bound " << bound << " " << what << " " << score;
  return text.str();
}

/// The first wrong bound of one row, in words.
std::string wrong_bound(const Problem& problem, const dosa_options& options, std::int64_t row,
                        Count& count) {
  const Outcome scores = run_scores(problem, options);
  const Bounds bounds = run_bounds(problem, options, row);
  if (bounds.status != DOSA_OK) return bounds.error;
  if (scores.status != DOSA_OK) return scores.error + scores.damage;
  const RealScores real(problem, row);
  const Window w = window(problem, row);
  for (std::int64_t i = 0; i < problem.num_keys; ++i) {
    const float u = bounds.bounds[static_cast<std::size_t>(i)];
    const float s = scores.scores[static_cast<std::size_t>(row * problem.num_keys + i)];
    if (i < w.begin || i >= w.end || bounds.certificate.valid == 0) {
      if (u != kInf) return describe("should be +Inf, score", row, i, u, s);
      continue;
    }
    ++count.pairs;
    if (std::isnan(u)) return describe("is NaN, score", row, i, u, s);
    const float scale = problem.k_scale[static_cast<std::size_t>(i)];
    if (!(std::isnormal(scale) && scale > 0) && u != kInf) {
      return describe("of a key that may not be pruned, score", row, i, u, s);
    }
    if (u == kInf) continue;
    ++count.bounded;
    if (std::isnan(s)) return describe("is finite, score", row, i, u, s);
    if (u < s) return describe("below score", row, i, u, s);
    if (!real.below(u, i, count)) return describe("below the real score, fp32", row, i, u, s);
  }
  return {};
}

/// Options of a trial, in a mode that screens.
dosa_options screening_options(const Trial& trial) {
  dosa_options options = options_of(trial, {});
  options.mode = trial.variant.mode % 2 == 0 ? DOSA_MODE_DOSA : DOSA_MODE_SCREEN;
  return options;
}

void expect_bounds(int cases, std::int64_t least_pairs, const rc::Gen<Trial>& generator) {
  Count count;
  check_cases(cases, [&] {
    const Trial trial = *generator;
    if (trial.recipe.num_queries == 0) return;
    const Problem problem = make_problem(trial.recipe);
    const auto row = static_cast<std::int64_t>(trial.recipe.seed) % trial.recipe.num_queries;
    const std::string text = wrong_bound(problem, screening_options(trial), row, count);
    if (!text.empty()) RC_FAIL(text);
  });
  std::cout << count.pairs << " pairs, " << count.bounded << " with a finite bound, "
            << count.by_fraction << " compared as fractions\n";
  EXPECT_GE(count.pairs, least_pairs * test_scale());
  EXPECT_GT(count.bounded, count.pairs / 4);
}

/// Trials of one kind and one sort of weights and scales, the rest random.
rc::Gen<Trial> only(const Limits& limits, std::vector<Kind> kinds, std::vector<Weights> weights,
                    std::vector<Scales> scales) {
  return rc::gen::map(trials(limits), [=](Trial t) {
    Random random(t.recipe.seed);
    t.recipe.kind = random.pick(kinds);
    t.recipe.weights = random.pick(weights);
    t.recipe.scales = random.pick(scales);
    t.recipe.windows = Windows::kNone;
    t.recipe.num_queries = 1;
    return t;
  });
}

TEST(LibraryBounds, AnythingAtAll) { expect_bounds(1500, 300000, trials({2, 96, 12, 2500, 64})); }

TEST(LibraryBounds, NearCancellingWeights) {
  expect_bounds(600, 180000,
                only({1, 64, 8, 2000, 64}, {Kind::kReal, Kind::kParallel, Kind::kInt},
                     {Weights::kCancelling}, {Scales::kOnes, Scales::kPositive}));
}

TEST(LibraryBounds, KeysAlongAndAgainstHeads) {
  expect_bounds(600, 180000,
                only({1, 64, 8, 2000, 64}, {Kind::kParallel, Kind::kPlateau},
                     {Weights::kSigned, Weights::kOnes, Weights::kMostlyNegative},
                     {Scales::kOnes, Scales::kPositive}));
}

TEST(LibraryBounds, HugeAndTinyFactors) {
  expect_bounds(600, 180000,
                only({1, 64, 8, 2000, 64}, {Kind::kReal, Kind::kCodes, Kind::kParallel},
                     {Weights::kWide, Weights::kTiny, Weights::kHuge, Weights::kSigned},
                     {Scales::kPositive, Scales::kTiny, Scales::kOnes}));
}

TEST(LibraryBounds, TrainedInputs) {
  if (!kTrainedLoaded) GTEST_SKIP() << "tests/data/code_small.safetensors is absent";
  expect_bounds(300, 300000,
                only({1, 32, 8, 6000, 64}, {Kind::kTrained}, {Weights::kMostlyNegative},
                     {Scales::kPositive}));
}

// Where `auto` would rather score every key, dosa_bounds still describes a certificate that holds.
TEST(LibraryBounds, AutoModeGivesACertificateToo) {
  Count count;
  check_cases(200, [&] {
    Trial trial = *trials({1, 64, 8, 1000, 64});
    trial.recipe.num_queries = 1;
    const std::string text = wrong_bound(make_problem(trial.recipe), make_options(), 0, count);
    if (!text.empty()) RC_FAIL(text);
  });
  EXPECT_GT(count.pairs, 10000);
}

// With every head retained, and none but positive weights, the slack is rounding alone: the bound
// must hold with little to spare, and must be tight.
TEST(LibraryBounds, AllHeadsRetained) {
  Count count;
  double widest = 0.0;
  check_cases(250, [&] {
    Trial trial = *only({1, 64, 16, 2500, 64}, {Kind::kReal, Kind::kCodes, Kind::kParallel},
                        {Weights::kSigned, Weights::kCancelling, Weights::kOnes, Weights::kWide},
                        {Scales::kOnes, Scales::kPositive});
    trial.recipe.nan_codes = 0;
    const Problem problem = make_problem(trial.recipe);
    dosa_options options = screening_options(trial);
    options.heads = trial.recipe.num_heads;
    const std::string text = wrong_bound(problem, options, 0, count);
    if (!text.empty()) RC_FAIL(text);
    const auto bounds = run_bounds(problem, options, 0).bounds;
    const auto scores = run_scores(problem, options).scores;
    double strength = 0.0;
    for (int h = 0; h < problem.num_heads; ++h) {
      const Vector q = decode(problem.q.data() + h * problem.head_dim, problem.head_dim);
      strength += std::fabs(problem.weights[static_cast<std::size_t>(h)]) *
                  std::sqrt(static_cast<double>(exact_dot(q, q)));
    }
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i) * problem.head_dim;
      const Vector k = decode(problem.k.data() + at, problem.head_dim);
      const double size =
          strength * std::sqrt(static_cast<double>(exact_dot(k, k))) * 0x1p-18 * problem.k_scale[i];
      if (size > 0x1p-100) widest = std::max(widest, (bounds[i] - scores[i]) / size);
    }
  });
  std::cout << count.pairs << " pairs, widest slack " << widest << " of sum |w||q||k|\n";
  EXPECT_GE(count.pairs, 100000 * test_scale());
  EXPECT_EQ(count.pairs, count.bounded);
  // Two sums of at most 70 roundings each, and what the int16 rows lose: well below 2^-7.
  EXPECT_LT(widest, 0x1p-7);
}

}  // namespace
}  // namespace dosa::oracle
