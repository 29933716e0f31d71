// SPDX-License-Identifier: Apache-2.0
// Replays single rows with chosen certificates, seeds and thresholds, key by key.
//
// Read as the paper's component study (docs/study.md): every row starts from one shared pool, the
// winners of an earlier row and the K keys most recent at it. The fixed threshold is the row's K-th
// best score over that pool; the rising one starts there and follows the engine's order of tiles
// and its records. Certificates, bounds and scores are the engine's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "study_cases.hpp"
#include "study_input.hpp"

namespace dosa::cli {

/// What is measured of one row with one plan. Shares are of visible keys, 0 to 1; slack and deficit
/// in standard deviations of the row's scores.
enum class Metric : std::size_t {
  kSurvivalFixed,   // U >= fixed threshold, keys of the pool included: the paper's survival
  kSurvivalTrue,    // U >= the true K-th score: what remains if the threshold is perfect
  kScoredFixed,     // pool, and what survives the fixed threshold outside it
  kScoredRising,    // pool, and what survives the rising threshold outside it
  kSlack,           // mean of U - s over visible keys
  kSlackSurvivors,  // the same over keys that survive the fixed threshold
  kDeficitFixed,    // true K-th score - fixed threshold
  kDeficitRising,   // mean of true K-th score - threshold in use, over screened keys
  kReductions,      // times the records were full and the threshold rose
  kSeedOverlap,     // share of the row's winners that the pool holds
  kWinnerOverlap,   // share of the row's winners that the pool's row selected as well
  kScreeningRows,   // R', retained heads and aggregates
  kCount
};
inline constexpr std::size_t kNumMetrics = static_cast<std::size_t>(Metric::kCount);
using Metrics = std::array<double, kNumMetrics>;

/// "survival_fixed", ...: as in the CSV and JSON files.
[[nodiscard]] const std::array<const char*, kNumMetrics>& metric_names();

/// The rising threshold during a scan, in kScanSteps steps of equally many keys.
inline constexpr std::size_t kScanSteps = 16;
struct Trajectory {
  std::array<double, kScanSteps> deficit{};  // true K-th score - threshold, standard deviations
  std::array<double, kScanSteps> scored{};   // share of the step's keys that are fully scored
};

struct RowResult {
  std::vector<Metrics> plans;  // NaN where the seeds of that age would be older than the input
  std::vector<Trajectory> trajectories;  // of the plans asked for
  std::int64_t violations = 0;           // (plan, key) pairs with U < s: a bug
  std::int64_t visible = 0;              // keys in the row's window
  int positive = 0;                      // heads of positive weight
  double above_fixed = 0.0;  // share of keys with s >= fixed threshold: the least that survives
  double near_zero = 0.0;    // share of keys with |s| below 1% of the true K-th score
};

class Replay {
 public:
  /// `input` must outlive the object. `traced` are positions in `plans`.
  Replay(const StudyInput& input, std::vector<StudyPlan> plans, std::vector<std::size_t> traced);

  /// Finds the winners of `rows`, on which later rows start. Rows 0 .. Q - 1.
  void add_pools(const std::vector<std::int64_t>& rows, int threads);

  /// True where the row sees more than K keys and may be certified.
  [[nodiscard]] bool usable(std::int64_t row) const;

  /// Needs the pools of row 0 and of row - age of every plan whose age is at most `row`.
  [[nodiscard]] RowResult run(std::int64_t row) const;

 private:
  struct Pool {
    std::vector<std::int32_t> winners, all;  // ascending ids; `all` holds the recent keys as well
  };

  const StudyInput& input_;
  std::vector<StudyPlan> plans_;
  std::vector<std::size_t> traced_;
  std::map<std::int64_t, Pool> pools_;  // by row
};

/// Calls work(i) for i in [0, count) from `threads` threads, each with the default floating-point
/// environment; rethrows the first exception.
void for_each_parallel(std::int64_t count, int threads,
                       const std::function<void(std::int64_t)>& work);

}  // namespace dosa::cli
