// SPDX-License-Identifier: Apache-2.0
#include "device/bench_cell.hpp"

#include <algorithm>
#include <utility>

#include "device/events.hpp"
#include "engine/cuda_run.cuh"
#include "failure.hpp"

namespace dosa::cli {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  // four times the L2 cache of an H200
constexpr int kPoison = 0xa5;

dosa_options options_of(const DeviceContender& contender) {
  dosa_options options{};
  check(dosa_cuda_options_init(&options, sizeof options));
  options.mode = static_cast<dosa_mode>(contender.mode);
  options.heads = contender.heads;
  options.score_model = contender.score_model;
  return options;
}

/// Events where the engine says that a phase begins.
class Phases {
 public:
  static void mark(void* user, const char* phase) { static_cast<Phases*>(user)->add(phase); }

  /// Seconds of each phase, all its parts together.
  [[nodiscard]] std::map<std::string, double> seconds() const {
    std::map<std::string, double> sums;
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
      sums[marks_[i].first] += marks_[i + 1].second.seconds_since(marks_[i].second);
    }
    return sums;
  }

 private:
  void add(const char* phase) {
    marks_.emplace_back(phase, Event());
    marks_.back().second.record();
  }

  std::vector<std::pair<std::string, Event>> marks_;
};

std::int64_t visible_pairs(const dosa_problem& part) {
  std::int64_t pairs = 0;
  for (std::int64_t row = 0; row < part.num_queries; ++row) {
    const auto clamped = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at, 0, part.num_keys);
    };
    const std::int64_t start = part.k_start == nullptr ? 0 : clamped(part.k_start[row]);
    const std::int64_t end = part.k_end == nullptr ? part.num_keys : clamped(part.k_end[row]);
    pairs += std::max<std::int64_t>(0, end - start);
  }
  return pairs;
}

}  // namespace

std::vector<double> DeviceCell::speedups(const DeviceOutcome& outcome) const {
  std::vector<double> ratio = outcomes[best].seconds;
  for (std::size_t n = 0; n < ratio.size(); ++n) ratio[n] /= outcome.seconds[n];
  return ratio;
}

DeviceCells::DeviceCells(int repetitions, int phase_calls)
    : repetitions_(repetitions), phase_calls_(phase_calls), flush_(kFlushBytes) {}

DeviceCell DeviceCells::run(const StudyInput& input, const dosa_problem& part,
                            const dosa_problem& device,
                            const std::vector<DeviceContender>& contenders) {
  DeviceCell cell{input.name,          input.source, input.domain,
                  input.layer,         input.seed,   part,
                  visible_pairs(part), {},           0};
  const auto cells = static_cast<std::size_t>(part.num_queries * part.topk);
  if (ids_.size() < cells) {
    ids_ = DeviceArray<std::int32_t>(cells);
    expected_ = PinnedArray<std::int32_t>(cells);
    found_ = PinnedArray<std::int32_t>(cells);
  }
  for (const DeviceContender& contender : contenders) {
    DeviceOutcome outcome;
    outcome.contender = contender;
    first_call(device, outcome);
    compare(input, part, contenders.front(), cell.outcomes.empty(), outcome);
    cell.outcomes.push_back(std::move(outcome));
  }
  const std::size_t count = cell.outcomes.size();
  for (int repetition = 0; repetition < repetitions_; ++repetition) {
    for (std::size_t n = 0; n < count; ++n) {  // another one goes first each time
      timed_call(device, cell.outcomes[(n + static_cast<std::size_t>(repetition)) % count]);
    }
  }
  for (DeviceOutcome& outcome : cell.outcomes) {
    if (outcome.contender.peer == nullptr) phase_calls(device, outcome);
  }
  for (std::size_t n = 0; n < count; ++n) {
    const DeviceContender& contender = cell.outcomes[n].contender;
    const bool every_key = contender.mode == DOSA_MODE_BASE || contender.mode == DOSA_MODE_FULL;
    if (contender.peer != nullptr || !every_key) continue;
    const auto time = [&](std::size_t at) { return bench::median(cell.outcomes[at].seconds); };
    if (time(n) < time(cell.best)) cell.best = n;
  }
  return cell;
}

/// Keeps the ids of the first contender, and compares those of the others with them.
void DeviceCells::compare(const StudyInput& input, const dosa_problem& part,
                          const DeviceContender& first_contender, bool first,
                          DeviceOutcome& outcome) {
  const auto cells = static_cast<std::size_t>(part.num_queries * part.topk);
  std::int32_t* const to = first ? expected_.get() : found_.get();
  DOSA_CUDA(cudaMemcpy(to, ids_.get(), cells * sizeof(std::int32_t), cudaMemcpyDeviceToHost));
  if (first) return;
  if (outcome.contender.peer != nullptr) {
    outcome.in_common = bench::ids_in_common(part, {expected_.get(), expected_.get() + cells},
                                             {found_.get(), found_.get() + cells});
  } else if (!std::equal(to, to + cells, expected_.get())) {
    throw Failure(input.name, "other ids by " + outcome.contender.name,
                  "those of " + first_contender.name);
  }
}

dosa_output DeviceCells::output(const dosa_problem& problem) const {
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids_.get();
  output.indices_stride = problem.topk;
  return output;
}

void DeviceCells::call(const dosa_problem& problem, DeviceOutcome& outcome) {
  if (outcome.contender.peer != nullptr) {
    const int status = outcome.contender.peer(&problem, ids_.get(), nullptr);
    if (status == 0) return;
    throw Failure(outcome.contender.name, "status " + std::to_string(status),
                  "0 from dosa_bench_peer_cuda_topk()");
  }
  const dosa_options options = options_of(outcome.contender);
  const dosa_output to = output(problem);
  check(dosa_cuda_topk(&problem, &options, &to, workspace_.get(), workspace_.bytes(), nullptr));
}

/// Makes room, warms up, and leaves the ids to be compared.
void DeviceCells::first_call(const dosa_problem& problem, DeviceOutcome& outcome) {
  DOSA_CUDA(cudaMemset(ids_.get(), kPoison, ids_.bytes()));
  if (outcome.contender.peer != nullptr) {
    call(problem, outcome);
    DOSA_CUDA(cudaDeviceSynchronize());
    return;
  }
  const dosa_options options = options_of(outcome.contender);
  check(dosa_cuda_workspace_bytes(&problem, &options, &outcome.workspace_bytes));
  if (workspace_.size() < outcome.workspace_bytes) {
    workspace_ = DeviceArray<std::byte>();  // first gives back the smaller one
    workspace_ = DeviceArray<std::byte>(outcome.workspace_bytes);
  }
  outcome.screen_rows = engine::cuda_screen_rows(problem, options);
  call(problem, outcome);
  outcome.counters.struct_size = sizeof outcome.counters;
  check(dosa_cuda_read_counters(workspace_.get(), &outcome.counters, nullptr));
}

void DeviceCells::timed_call(const dosa_problem& problem, DeviceOutcome& outcome) {
  const Event begin;
  const Event end;
  DOSA_CUDA(cudaMemset(flush_.get(), 0, flush_.bytes()));
  begin.record();
  const double start = bench::clock_seconds(CLOCK_MONOTONIC);
  call(problem, outcome);
  outcome.enqueue.push_back(bench::clock_seconds(CLOCK_MONOTONIC) - start);
  end.record();
  outcome.seconds.push_back(end.seconds_since(begin));
}

void DeviceCells::phase_calls(const dosa_problem& problem, DeviceOutcome& outcome) {
  for (int i = 0; i < phase_calls_; ++i) {
    DOSA_CUDA(cudaMemset(flush_.get(), 0, flush_.bytes()));
    Phases phases;
    engine::cuda_topk(problem, options_of(outcome.contender), output(problem), workspace_.get(),
                      nullptr, {&Phases::mark, &phases});
    for (const auto& [phase, seconds] : phases.seconds()) {
      outcome.phases[phase].push_back(seconds);
    }
  }
}

}  // namespace dosa::cli
