// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>

#include "engine/describe.hpp"
#include "engine/row_group.hpp"
#include "engine/sums.hpp"
#include "engine/threads.hpp"
#include "numeric/arena.hpp"
#include "numeric/float_environment.hpp"

namespace dosa::engine {
namespace {

// Groups per thread where rows are few: a tile is prepared once per group, so groups are large.
constexpr std::int64_t kGroupsPerThread = 1;

/// What one thread owns in the workspace.
struct Worker {
  RowGroup* group;
  Audit* audit;
};

/// `group` is a scratch for placing; the worker's own copy lies in the arena.
Worker place_worker(Arena& arena, RowGroup& group, const dosa_problem& problem,
                    const dosa_options& options, int rows) {
  group.place(arena, problem, options, rows);
  return {arena.take<RowGroup>(1), arena.take<Audit>(1)};
}

std::size_t worker_bytes(const dosa_problem& problem, const dosa_options& options, int rows) {
  Arena counter;
  RowGroup scratch;
  place_worker(counter, scratch, problem, options, rows);
  return counter.used();
}

Worker make_worker(void* base, const dosa_problem& problem, const dosa_options& options, int rows) {
  Arena arena(base);
  RowGroup scratch;
  const Worker worker = place_worker(arena, scratch, problem, options, rows);
  return {new (worker.group) RowGroup(scratch), new (worker.audit) Audit()};
}

std::int64_t num_groups(const dosa_problem& problem, std::int64_t group_rows) {
  return (problem.num_queries + group_rows - 1) / group_rows;
}

/// Bytes shared by all threads: the groups' sums, and what aligning the workspace may cost.
std::size_t shared_bytes(const dosa_problem& problem, std::int64_t group_rows) {
  Arena counter;
  counter.take<Sums>(static_cast<std::size_t>(num_groups(problem, group_rows)));
  return counter.used() + Arena::kAlignment - 1;
}

class Progress {
 public:
  Progress(const dosa_options& options, std::int64_t rows) : options_(options), rows_(rows) {}
  void add(std::int64_t rows) {
    if (options_.progress == nullptr) return;
    const std::lock_guard<std::mutex> one_at_a_time(mutex_);
    done_ += rows;
    options_.progress(options_.progress_user, done_, rows_);
  }

 private:
  const dosa_options& options_;
  std::int64_t rows_;
  std::int64_t done_ = 0;
  std::mutex mutex_;  // of this call alone: a callback may itself call the library
};

}  // namespace

namespace {

/// Rows that share a tile. More heads and dimensions mean more state per row and more work for each
/// tile, so that fewer rows are enough to pay for it.
std::int64_t most_rows(const dosa_problem& problem) {
  constexpr std::int64_t kPlainSize = 32 * 128;  // H * D with which kGroupRows was measured
  const std::int64_t size = static_cast<std::int64_t>(problem.num_heads) * problem.head_dim;
  return std::clamp<std::int64_t>(kGroupRows * kPlainSize / size, kGroupRows / 4, kGroupRows);
}

}  // namespace

Layout layout(const dosa_problem& problem, const dosa_options& options) {
  const std::int64_t rows = std::max<std::int64_t>(1, problem.num_queries);
  const int most_threads = call_threads(options.threads);
  const std::int64_t groups = kGroupsPerThread * most_threads;
  // A power of two: the halves below are then the groups that least_bytes() looks at.
  const auto even = static_cast<std::uint64_t>(
      std::clamp<std::int64_t>((rows + groups - 1) / groups, 1, most_rows(problem)));
  const auto wanted = static_cast<std::int64_t>(std::bit_floor(even));
  Layout best;
  // Full groups on fewer threads lose to small groups on all of them, and nothing else does: a tile
  // is prepared once per group.
  for (std::int64_t group = wanted; group >= 1; group /= 2) {
    const std::int64_t useful = std::min<std::int64_t>(most_threads, (rows + group - 1) / group);
    const std::size_t shared = shared_bytes(problem, group);
    const std::size_t bytes = worker_bytes(problem, options, static_cast<int>(group));
    if (shared >= options.workspace_limit) continue;
    const auto fitting = static_cast<std::int64_t>((options.workspace_limit - shared) / bytes);
    const auto threads = static_cast<int>(std::min(fitting, useful));
    if (threads <= best.threads && best.bytes != 0) continue;
    if (threads < 1) continue;
    best = {threads, static_cast<int>(group), bytes * static_cast<std::size_t>(threads) + shared};
    if (threads == useful) break;
  }
  return best;
}

std::size_t least_bytes(const dosa_problem& problem, const dosa_options& options) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (int group = kGroupRows; group >= 1; group /= 2) {
    least = std::min(least, worker_bytes(problem, options, group) + shared_bytes(problem, group));
  }
  return least;
}

void topk(const dosa_problem& problem, const dosa_options& options, const dosa_output& output,
          void* workspace, Audit* audit) {
  const auto begin_time = std::chrono::steady_clock::now();
  const Layout cut = layout(problem, options);
  auto* base = static_cast<std::byte*>(align_workspace(workspace));
  const std::size_t bytes = worker_bytes(problem, options, cut.group_rows);
  const std::int64_t groups = num_groups(problem, cut.group_rows);
  Arena shared(base + bytes * static_cast<std::size_t>(cut.threads));
  Sums* sums = shared.take<Sums>(static_cast<std::size_t>(groups));
  Progress progress(options, problem.num_queries);
#pragma omp parallel num_threads(cut.threads)
  {
    const FloatEnvironment environment;
    const Worker worker = make_worker(base + static_cast<std::size_t>(team_member()) * bytes,
                                      problem, options, cut.group_rows);
    if (audit != nullptr) worker.group->set_audit(worker.audit);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t g = groups - 1; g >= 0; --g) {  // the last rows see the most keys: first
      const std::int64_t begin = g * cut.group_rows;
      const std::int64_t end = std::min(begin + cut.group_rows, problem.num_queries);
      new (sums + g) Sums(worker.group->run(begin, end, output));
      progress.add(end - begin);
    }
    if (audit != nullptr) {
#pragma omp critical(dosa_audit)
      audit->merge(*worker.audit);
    }
  }
  if (output.stats == nullptr) return;
  Sums total;
  for (std::int64_t g = 0; g < groups; ++g) total.add(sums[g]);
  total.write(*output.stats);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_time;
  output.stats->seconds = seconds.count();
}

void scores(const dosa_problem& problem, const dosa_options& options, std::int64_t row_begin,
            std::int64_t row_end, float* out, std::int64_t stride, void* workspace) {
  const Layout cut = layout(problem, options);
  auto* base = static_cast<std::byte*>(align_workspace(workspace));
  const std::size_t bytes = worker_bytes(problem, options, cut.group_rows);
#pragma omp parallel num_threads(cut.threads)
  {
    const FloatEnvironment environment;
    const Worker worker = make_worker(base + static_cast<std::size_t>(team_member()) * bytes,
                                      problem, options, cut.group_rows);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      float* cells = out + (row - row_begin) * stride;
      std::fill(cells, cells + problem.num_keys, -std::numeric_limits<float>::infinity());
      worker.group->score_row(row, cells);
    }
  }
}

void bounds(const dosa_problem& problem, const dosa_options& options, std::int64_t row,
            dosa_certificate* certificate, float* out, void* workspace) {
  const FloatEnvironment environment;
  const Worker worker = make_worker(align_workspace(workspace), problem, options,
                                    layout(problem, options).group_rows);
  const RowState& state = worker.group->inspect(row);
  if (out != nullptr) {
    std::fill(out, out + problem.num_keys, std::numeric_limits<float>::infinity());
    worker.group->inspect_bounds(out);
  }
  if (certificate != nullptr) describe(state, problem, *certificate);
}

}  // namespace dosa::engine
