// SPDX-License-Identifier: Apache-2.0
// One input at one length: all modes by turns, so that whatever else the machine does meets all of
// them alike; all must return the same ids.
#ifndef DOSA_CLI_BENCH_CELL_HPP
#define DOSA_CLI_BENCH_CELL_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench_memory.hpp"
#include "bench_peer.hpp"
#include "bench_sgemm.hpp"
#include "dosa/dosa.hpp"
#include "failure.hpp"
#include "measure.hpp"
#include "study_input.hpp"

namespace dosa::bench {

/// A way of answering: a mode of the engine, the independent baseline, or somebody else's library.
struct Contender {
  std::string name;
  dosa_mode mode = DOSA_MODE_AUTO;
  int heads = 0;       // r; 0: free
  bool sgemm = false;  // DenseSgemm
  const Peer* peer = nullptr;
  [[nodiscard]] bool ours() const { return !sgemm && peer == nullptr; }
};

struct Outcome {
  Contender contender;
  std::vector<Lap> laps;  // of one call each, averages over the calls of a repetition
  dosa_stats stats{};
  double retained = 0.0;        // mean r over the rows that were screened
  double screening_rows = 0.0;  // R': r and what the aggregates add
  double in_common = 1.0;       // share of the first contender's ids that this one returned
  std::size_t workspace_bytes = 0;
  std::int64_t peak_bytes = -1;  // resident, beyond what the process held; -1: not measured
  [[nodiscard]] std::vector<double> times(bool cpu) const {
    std::vector<double> seconds;
    for (const Lap& lap : laps) seconds.push_back(cpu ? lap.cpu : lap.wall);
    return seconds;
  }
  /// Share of the visible keys that were scored with all heads.
  [[nodiscard]] double survival() const {
    return static_cast<double>(stats.fully_scored) / static_cast<double>(stats.visible);
  }
};

struct Cell {
  std::string input, source, domain;  // as StudyInput
  int layer = -1;
  std::uint64_t seed = 0;
  dosa_problem problem{};  // shapes only
  std::vector<Outcome> outcomes;
  std::size_t best = 0;  // the faster of the modes that score every key

  /// best / outcome, repetition by repetition.
  [[nodiscard]] std::vector<double> speedups(const Outcome& outcome, bool cpu) const {
    std::vector<double> ratio = outcomes[best].times(cpu);
    const std::vector<double> other = outcome.times(cpu);
    ratio.resize(std::min(ratio.size(), other.size()));
    for (std::size_t n = 0; n < ratio.size(); ++n) ratio[n] /= other[n];
    return ratio;
  }
  /// 1 / (R'/H + sigma): what is left where screening costs its share and nothing else costs.
  [[nodiscard]] double ceiling(const Outcome& outcome) const {
    return 1.0 / (outcome.screening_rows / problem.num_heads + outcome.survival());
  }
};

struct CellOptions {
  int threads = 2;
  int repetitions = 5;
  double least_seconds = 0.02;  // a repetition calls again until it took this long
  double most_seconds = 60.0;   // after this long, three repetitions are enough
  bool cpu_clock = false;       // which clock decides what is best
  bool memory = false;          // measure the peak of resident memory of one more call
};

class CellRunner {
 public:
  CellRunner(const DenseSgemm& dense, const CellOptions& options)
      : dense_(dense), options_(options) {}

  /// Throws: cli::Failure where two modes differ.
  Cell run(const cli::StudyInput& input, const dosa_problem& problem,
           const std::vector<Contender>& contenders) {
    Cell cell{input.name, input.source, input.domain, input.layer, input.seed, problem, {}, 0};
    ids_.assign(static_cast<std::size_t>(problem.num_queries) * problem.topk, 0);
    std::vector<std::int32_t> expected;
    std::vector<int> calls;
    for (const Contender& contender : contenders) {
      Outcome outcome;
      outcome.contender = contender;
      const Lap first = time_once([&] { call(problem, outcome); });  // warms up, too
      calls.push_back(std::max(1, static_cast<int>(options_.least_seconds / first.wall)));
      if (expected.empty()) expected = ids_;
      // Somebody else's arithmetic may be another: how far it agrees is a result, not a failure.
      if (contender.peer != nullptr) outcome.in_common = ids_in_common(problem, expected, ids_);
      if (contender.peer == nullptr && expected != ids_) {
        throw cli::Failure(input.name, "other ids by " + contender.name,
                           "those of " + contenders.front().name);
      }
      if (options_.memory) outcome.peak_bytes = peak_of_call(problem, outcome);
      count_rows(problem, outcome);
      cell.outcomes.push_back(std::move(outcome));
    }
    const std::size_t count = cell.outcomes.size();
    const double begin = clock_seconds(CLOCK_MONOTONIC);
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      const bool long_enough = clock_seconds(CLOCK_MONOTONIC) - begin > options_.most_seconds;
      if (repetition >= kLeastRepetitions && long_enough) break;
      for (std::size_t n = 0; n < count; ++n) {  // another one goes first each time
        const std::size_t at = (n + static_cast<std::size_t>(repetition)) % count;
        Outcome& outcome = cell.outcomes[at];
        // The baseline from outside is the slowest of all and decides nothing: once is enough.
        if (outcome.contender.sgemm && repetition > 0 && outcome.laps[0].wall > 1) continue;
        repeat(problem, calls[at], outcome);
      }
    }
    for (std::size_t n = 0; n < count; ++n) {
      const Outcome& outcome = cell.outcomes[n];
      const dosa_mode mode = outcome.contender.mode;
      if (!outcome.contender.ours() || (mode != DOSA_MODE_BASE && mode != DOSA_MODE_FULL)) continue;
      if (time_of(outcome) < time_of(cell.outcomes[cell.best])) cell.best = n;
    }
    return cell;
  }

 private:
  static constexpr int kLeastRepetitions = 3;

  [[nodiscard]] double time_of(const Outcome& outcome) const {
    return median(outcome.times(options_.cpu_clock));
  }

  void repeat(const dosa_problem& problem, int calls, Outcome& outcome) {
    const Lap lap = time_once([&] {
      for (int n = 0; n < calls; ++n) call(problem, outcome);
    });
    outcome.laps.push_back({lap.wall / calls, lap.cpu / calls});
  }

  void call(const dosa_problem& problem, Outcome& outcome) {
    if (outcome.contender.sgemm) {
      dense_.topk(problem, options_.threads, ids_.data());
      return;
    }
    if (outcome.contender.peer != nullptr) {
      outcome.contender.peer->topk(problem, options_.threads, ids_.data());
      return;
    }
    const dosa_options options = engine_options(outcome.contender);
    std::size_t bytes = 0;
    check(dosa_workspace_bytes(&problem, &options, &bytes));
    outcome.workspace_bytes = bytes;
    if (workspace_.size() < bytes) workspace_.resize(bytes);
    rows_.resize(static_cast<std::size_t>(problem.num_queries));
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids_.data();
    output.indices_stride = problem.topk;
    output.rows = rows_.data();
    outcome.stats.struct_size = sizeof outcome.stats;
    output.stats = &outcome.stats;
    check(dosa_topk(&problem, &options, &output, workspace_.data(), workspace_.size()));
  }

  /// Of one call that has to make its workspace; inputs and outputs are there already.
  std::int64_t peak_of_call(const dosa_problem& problem, Outcome& outcome) {
    std::vector<std::byte>().swap(workspace_);
    const PeakMemory peak;
    call(problem, outcome);
    return peak.grown();
  }

  [[nodiscard]] dosa_options engine_options(const Contender& contender) const {
    dosa_options options = default_options();
    options.mode = contender.mode;
    options.heads = contender.heads;
    options.threads = options_.threads;
    return options;
  }

  /// r and R' of the last call's rows; the auxiliary rows are those of a few rows' certificates.
  void count_rows(const dosa_problem& problem, Outcome& outcome) {
    double screened = 0.0;
    for (const dosa_row_stats& row : rows_) {
      if (row.screened == 0) continue;
      outcome.retained += row.heads;
      ++screened;
    }
    if (!outcome.contender.ours() || screened == 0.0) {
      outcome.retained = 0.0;
      return;
    }
    outcome.retained /= screened;
    dosa_options options = engine_options(outcome.contender);
    options.heads = static_cast<int>(std::lround(outcome.retained));
    double auxiliary = 0.0;
    constexpr int kLooks = 4;
    for (int look = 0; look < kLooks; ++look) {
      dosa_certificate certificate{};
      certificate.struct_size = sizeof certificate;
      const std::int64_t row = look * problem.num_queries / kLooks;
      check(dosa_bounds(&problem, &options, row, &certificate, nullptr, workspace_.data(),
                        workspace_.size()));
      auxiliary += certificate.screening_rows - certificate.num_retained;
    }
    outcome.screening_rows = outcome.retained + auxiliary / kLooks;
  }

  const DenseSgemm& dense_;
  CellOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<std::byte> workspace_;
  std::vector<dosa_row_stats> rows_;
};

}  // namespace dosa::bench

#endif  // DOSA_CLI_BENCH_CELL_HPP
