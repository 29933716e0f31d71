// SPDX-License-Identifier: Apache-2.0
#include "study_row.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "engine/row_group.hpp"
#include "numeric/float_environment.hpp"
#include "screen/screen.hpp"
#include "select/records.hpp"
#include "study_scores.hpp"

namespace dosa::cli {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Ids = std::vector<std::int32_t>;

/// Positions of the `count` best scores; equal scores: the lower position.
Ids best_positions(const std::vector<float>& scores, std::int64_t count) {
  Ids order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const std::uint32_t x = score_code(scores[static_cast<std::size_t>(a)]);
    const std::uint32_t y = score_code(scores[static_cast<std::size_t>(b)]);
    return x != y ? x > y : a < b;
  };
  const auto kept = std::min<std::int64_t>(count, static_cast<std::int64_t>(order.size()));
  std::nth_element(order.begin(), order.begin() + kept - (kept > 0 ? 1 : 0), order.end(), before);
  order.resize(static_cast<std::size_t>(kept));
  std::sort(order.begin(), order.end(), before);
  return order;
}

template <typename Element, typename Test>
double share_of(const std::vector<Element>& all, const Test& test) {
  const auto count = std::count_if(all.begin(), all.end(), test);
  return static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(1, all.size()));
}

double deviation_of(const std::vector<float>& scores) {
  double sum = 0.0;
  double squares = 0.0;
  double count = 0.0;
  for (const float score : scores) {
    if (!std::isfinite(score)) continue;
    sum += score;
    squares += double{score} * score;
    count += 1.0;
  }
  if (count == 0.0) return 0.0;
  return std::sqrt(std::max(0.0, squares / count - sum / count * (sum / count)));
}

/// What a row starts with: scored keys, and the threshold that they prove.
struct Start {
  Ids ids;                     // ascending positions in the window
  std::vector<bool> contains;  // by position
  float threshold = -kInfinity;
};

Start make_start(Ids ids, const std::vector<float>& scores, std::int64_t topk) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Start start;
  start.contains.resize(scores.size());
  std::vector<float> known;
  for (const std::int32_t id : ids) {
    start.contains[static_cast<std::size_t>(id)] = true;
    known.push_back(scores[static_cast<std::size_t>(id)]);
  }
  start.ids = std::move(ids);
  if (static_cast<std::int64_t>(known.size()) >= topk) {
    const Ids best = best_positions(known, topk);
    start.threshold = known[static_cast<std::size_t>(best.back())];
  }
  return start;
}

/// Keys on which activity is measured: the K best of the start, or the sample or its best quarter
/// without those at the threshold, as the engine takes them.
Ids statistics_keys(const StudyPlan& plan, const Start& start, const Ids& sample,
                    const std::vector<float>& scores, std::int64_t topk) {
  const auto score = [&](std::int32_t id) { return scores[static_cast<std::size_t>(id)]; };
  Ids keys;
  if (plan.statistics == DOSA_STATISTICS_SEEDS) {
    std::vector<float> known;
    for (const std::int32_t id : start.ids) known.push_back(score(id));
    for (const std::int32_t at : best_positions(known, topk)) {
      keys.push_back(start.ids[static_cast<std::size_t>(at)]);
    }
    return keys;
  }
  if (plan.statistics == DOSA_STATISTICS_RANDOM) return sample;
  std::vector<float> ordinary;
  for (const std::int32_t id : sample) {
    if (score(id) < start.threshold) ordinary.push_back(score(id));
  }
  if (ordinary.empty()) return keys;
  const auto cut = static_cast<std::ptrdiff_t>(ordinary.size() - 1 - ordinary.size() / 4);
  std::nth_element(ordinary.begin(), ordinary.begin() + cut, ordinary.end());
  const float least = ordinary[static_cast<std::size_t>(cut)];
  for (const std::int32_t id : sample) {
    if (score(id) >= least && score(id) < start.threshold) keys.push_back(id);
  }
  return keys;
}

/// Everything about a row that its plans share.
struct RowFacts {
  std::vector<float> scores;
  Ids winners;
  float true_threshold = 0.0F;
  double deviation = 1.0;
  std::int64_t topk = 0;
};

/// Scans the row with a rising threshold.
class RisingScan {
 public:
  RisingScan(const RowFacts& row, const Start& start, const std::vector<float>& bounds)
      : row_(row), start_(start), bounds_(bounds), memory_([&](Arena& arena) {
          records_.place(arena, static_cast<int>(row.topk), plan::kTileKeys);
        }) {
    records_.clear();
    for (const std::int32_t id : start.ids) {
      records_.offer(row.scores[static_cast<std::size_t>(id)], id);
      records_.reserve();
    }
    records_.reduce();
    first_reductions_ = records_.reductions();
  }

  void run() {
    const auto length = static_cast<std::int64_t>(row_.scores.size());
    const engine::TileOrder order({0, length});
    std::int64_t seen = 0;
    for (std::int64_t t = 0; t < order.size(); ++t) {
      const engine::Window tile = order[t];
      visit(tile, static_cast<std::size_t>(seen * static_cast<std::int64_t>(kScanSteps) / length));
      seen += tile.length();
      records_.reserve();
    }
  }

  [[nodiscard]] std::int64_t scored() const { return scored_; }
  [[nodiscard]] double mean_deficit() const { return screened_ > 0 ? deficit_ / screened_ : 0.0; }
  [[nodiscard]] double reductions() const {
    return static_cast<double>(records_.reductions() - first_reductions_);
  }
  [[nodiscard]] Trajectory trajectory() const {
    Trajectory result;
    for (std::size_t step = 0; step < kScanSteps; ++step) {
      if (step_keys_[step] == 0) continue;
      result.scored[step] = step_scored_[step] / step_keys_[step];
      result.deficit[step] = step_deficit_[step] / step_keys_[step];
    }
    return result;
  }

 private:
  void visit(const engine::Window& tile, std::size_t step) {
    const float threshold = records_.threshold();
    const LowerBound guarded = screen::guarded_threshold(threshold);
    const double deficit = (double{row_.true_threshold} - threshold) / row_.deviation;
    for (auto at = static_cast<std::size_t>(tile.begin); at < static_cast<std::size_t>(tile.end);
         ++at) {
      if (start_.contains[at]) continue;
      step_keys_[step] += 1.0;
      if (std::isfinite(deficit)) {
        screened_ += 1.0;
        deficit_ += deficit;
        step_deficit_[step] += deficit;
      }
      if (rejects(UpperBound(bounds_[at]), guarded)) continue;
      ++scored_;
      step_scored_[step] += 1.0;
      records_.offer(row_.scores[at], static_cast<std::int32_t>(at));
    }
  }

  const RowFacts& row_;
  const Start& start_;
  const std::vector<float>& bounds_;
  select::RecordBuffer records_;
  Placed memory_;
  std::int64_t first_reductions_ = 0;
  std::int64_t scored_ = 0;
  double screened_ = 0.0, deficit_ = 0.0;
  std::array<double, kScanSteps> step_keys_{}, step_scored_{}, step_deficit_{};
};

double& of(Metrics& metrics, Metric metric) { return metrics[static_cast<std::size_t>(metric)]; }

/// Shares of survivors and mean slack, one pass over the keys.
void measure_bounds(const RowFacts& row, const Start& start, const std::vector<float>& bounds,
                    Metrics& metrics, std::int64_t& violations) {
  const LowerBound fixed = screen::guarded_threshold(start.threshold);
  const LowerBound perfect = screen::guarded_threshold(row.true_threshold);
  std::int64_t survive = 0;
  std::int64_t outside = 0;
  std::int64_t survive_perfect = 0;
  std::array<double, 2> slack{};
  std::array<double, 2> count{};
  for (std::size_t at = 0; at < bounds.size(); ++at) {
    const UpperBound bound(bounds[at]);
    const bool alive = !rejects(bound, fixed);
    survive += alive ? 1 : 0;
    outside += alive && !start.contains[at] ? 1 : 0;
    survive_perfect += rejects(bound, perfect) ? 0 : 1;
    const float proven = screen::certified_bound(bounds[at]).value;
    if (proven < row.scores[at]) ++violations;
    if (!std::isfinite(proven) || !std::isfinite(row.scores[at])) continue;
    for (const std::size_t kind : {0U, 1U}) {
      if (kind == 1 && !alive) continue;
      slack[kind] += double{proven} - row.scores[at];
      count[kind] += 1.0;
    }
  }
  const auto visible = static_cast<double>(bounds.size());
  of(metrics, Metric::kSurvivalFixed) = static_cast<double>(survive) / visible;
  of(metrics, Metric::kSurvivalTrue) = static_cast<double>(survive_perfect) / visible;
  of(metrics, Metric::kScoredFixed) =
      static_cast<double>(outside + static_cast<std::int64_t>(start.ids.size())) / visible;
  of(metrics, Metric::kSlack) = count[0] > 0 ? slack[0] / count[0] / row.deviation : 0.0;
  of(metrics, Metric::kSlackSurvivors) = count[1] > 0 ? slack[1] / count[1] / row.deviation : 0.0;
}

Metrics measure(const RowFacts& row, const Start& start, const std::vector<float>& bounds,
                const plan::Certificate& certificate, RowResult& result, bool traced) {
  Metrics metrics{};
  measure_bounds(row, start, bounds, metrics, result.violations);
  RisingScan scan(row, start, bounds);
  scan.run();
  const auto visible = static_cast<double>(row.scores.size());
  of(metrics, Metric::kScoredRising) =
      static_cast<double>(scan.scored() + static_cast<std::int64_t>(start.ids.size())) / visible;
  of(metrics, Metric::kDeficitFixed) =
      (double{row.true_threshold} - start.threshold) / row.deviation;
  of(metrics, Metric::kDeficitRising) = scan.mean_deficit();
  of(metrics, Metric::kReductions) = scan.reductions();
  of(metrics, Metric::kScreeningRows) = certificate.num_retained + certificate.num_aggregates;
  of(metrics, Metric::kSeedOverlap) = share_of(
      row.winners, [&](std::int32_t id) { return start.contains[static_cast<std::size_t>(id)]; });
  if (traced) result.trajectories.push_back(scan.trajectory());
  return metrics;
}

RowFacts row_facts(StudyRow& row, std::int64_t topk) {
  RowFacts facts;
  facts.topk = topk;
  facts.scores = row.scores();
  facts.winners = best_positions(facts.scores, topk);
  facts.true_threshold = facts.scores[static_cast<std::size_t>(facts.winners.back())];
  const double deviation = deviation_of(facts.scores);
  facts.deviation = deviation > 0.0 ? deviation : 1.0;
  return facts;
}

}  // namespace

const std::array<const char*, kNumMetrics>& metric_names() {
  static constexpr std::array<const char*, kNumMetrics> kNames = {
      "survival_fixed", "survival_true",   "scored_fixed",   "scored_rising",
      "slack",          "slack_survivors", "deficit_fixed",  "deficit_rising",
      "reductions",     "seed_overlap",    "winner_overlap", "screening_rows"};
  return kNames;
}

Replay::Replay(const StudyInput& input, std::vector<StudyPlan> plans,
               std::vector<std::size_t> traced)
    : input_(input), plans_(std::move(plans)), traced_(std::move(traced)) {}

bool Replay::usable(std::int64_t row) const {
  const StudyRow at(input_.problem, row);
  return at.finite() && at.window().length() > input_.problem.topk;
}

void Replay::add_pools(const std::vector<std::int64_t>& rows, int threads) {
  std::vector<Pool> found(rows.size());
  for_each_parallel(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t n) {
    StudyRow row(input_.problem, rows[static_cast<std::size_t>(n)]);
    const engine::Window window = row.window();
    Pool pool;
    for (const std::int32_t at : best_positions(row.scores(), input_.problem.topk)) {
      pool.winners.push_back(at + static_cast<std::int32_t>(window.begin));
    }
    std::sort(pool.winners.begin(), pool.winners.end());
    pool.all = pool.winners;
    const std::int64_t recent = input_.problem.topk;
    for (std::int64_t id = std::max(window.begin, window.end - recent); id < window.end; ++id) {
      pool.all.push_back(static_cast<std::int32_t>(id));
    }
    found[static_cast<std::size_t>(n)] = std::move(pool);
  });
  for (std::size_t n = 0; n < rows.size(); ++n) pools_[rows[n]] = std::move(found[n]);
}

RowResult Replay::run(std::int64_t row_index) const {
  StudyRow row(input_.problem, row_index);
  const engine::Window window = row.window();
  const auto first = static_cast<std::int32_t>(window.begin);
  const RowFacts facts = row_facts(row, input_.problem.topk);

  // The engine's sample, as positions in the window.
  Ids sample(static_cast<std::size_t>(
      std::clamp<std::int64_t>(window.length() / 8, 1, engine::kSampleKeys)));
  engine::spread_sample({0, window.length()}, static_cast<int>(sample.size()), sample.data());

  std::vector<Start> starts;
  std::vector<double> overlaps;
  std::vector<plan::Certificate> certificates;
  for (const StudyPlan& plan : plans_) {
    const bool aged = plan.age > 0 && plan.age <= row_index;
    const Pool& pool = pools_.at(aged ? row_index - plan.age : 0);
    Ids ids;
    for (const std::int32_t id : pool.all) {
      if (id >= window.begin && id < window.end) ids.push_back(id - first);
    }
    if (plan.statistics != DOSA_STATISTICS_SEEDS) {
      ids.insert(ids.end(), sample.begin(), sample.end());
    }
    starts.push_back(make_start(std::move(ids), facts.scores, input_.problem.topk));
    Ids keys = statistics_keys(plan, starts.back(), sample, facts.scores, input_.problem.topk);
    for (std::int32_t& key : keys) key += first;
    certificates.push_back(row.certify(row.activity(keys), plan.certificate));
    overlaps.push_back(share_of(facts.winners, [&](std::int32_t at) {
      return std::binary_search(pool.winners.begin(), pool.winners.end(), at + first);
    }));
  }

  RowResult result;
  result.visible = window.length();
  const std::vector<std::vector<float>> bounds = row.bounds(certificates);
  for (std::size_t n = 0; n < plans_.size(); ++n) {
    const bool traced = std::find(traced_.begin(), traced_.end(), n) != traced_.end();
    Metrics metrics = measure(facts, starts[n], bounds[n], certificates[n], result, traced);
    of(metrics, Metric::kWinnerOverlap) = overlaps[n];
    if (plans_[n].age > row_index) metrics.fill(std::numeric_limits<double>::quiet_NaN());
    result.plans.push_back(metrics);
  }
  for (int h = 0; h < input_.problem.num_heads; ++h)
    result.positive += row.weights()[h] > 0 ? 1 : 0;
  result.above_fixed =
      share_of(facts.scores, [&](float score) { return score >= starts.front().threshold; });
  result.near_zero = share_of(facts.scores, [&](float score) {
    return std::fabs(score) < 0.01F * std::fabs(facts.true_threshold);
  });
  return result;
}

void for_each_parallel(std::int64_t count, int threads,
                       const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto loop = [&] {
    const FloatEnvironment environment;
    for (std::int64_t n = next++; n < count; n = next++) {
      try {
        work(n);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < std::min<std::int64_t>(threads, count); ++t) others.emplace_back(loop);
    loop();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace dosa::cli
