// SPDX-License-Identifier: Apache-2.0
// Threads of a decode step. Long requests first, each shared by all threads; then the others, each
// by one thread.
#include "engine/decode.hpp"

#include <chrono>
#include <new>

#include "engine/decode_worker.hpp"
#include "engine/threads.hpp"
#include "numeric/float_environment.hpp"

namespace dosa::engine {
namespace {

// A request is shared where it is more than this part of a thread's even share of the call's tokens
// and long enough for a dozen barriers, of microseconds each, not to matter.
constexpr std::int64_t kSharesPerThread = 4;
constexpr std::int64_t kLeastShared = 16384;
// Tiles of the first round of a shared request; each round doubles what has been seen.
constexpr std::int64_t kFirstTiles = 64;

/// What all threads of a call share.
struct Team {
  DecodeWorker** workers = nullptr;  // (threads); null: not there, as the runtime gave fewer
  Barrier* barrier = nullptr;

  void place(Arena& arena, int threads) {
    workers = arena.take<DecodeWorker*>(static_cast<std::size_t>(threads));
    barrier = arena.take<Barrier>(1);
  }
};

/// `worker` is a scratch for placing; the thread's own copy lies in the arena.
DecodeWorker* place_worker(Arena& arena, DecodeWorker& worker, const dosa_paged_problem& problem,
                           const dosa_options& options) {
  worker.place(arena, problem, options);
  return arena.take<DecodeWorker>(1);
}

std::size_t worker_bytes(const dosa_paged_problem& problem, const dosa_options& options) {
  Arena counter;
  DecodeWorker scratch;
  place_worker(counter, scratch, problem, options);
  return counter.used();
}

DecodeWorker* make_worker(void* base, const dosa_paged_problem& problem,
                          const dosa_options& options) {
  Arena arena(base);
  DecodeWorker scratch;
  DecodeWorker* worker = place_worker(arena, scratch, problem, options);
  return new (worker) DecodeWorker(scratch);
}

/// Bytes that all threads share, and what aligning the workspace may cost.
std::size_t shared_bytes(int threads) {
  Arena counter;
  Team().place(counter, threads);
  return counter.used() + Arena::kAlignment - 1;
}

/// A request by all threads of the team; every thread calls this.
void run_shared(const Team& team, std::int64_t b, Share share, const dosa_output& output) {
  const auto sync = [&] { team.barrier->wait(share.members); };
  sync();  // all workers exist, and the request before is answered
  DecodeWorker& lead = *team.workers[0];
  DecodeWorker& mine = *team.workers[share.member];
  if (share.member == 0) lead.start(b);
  sync();
  mine.score_witnesses(lead, share);
  sync();
  lead.take_records(team.workers, share);
  sync();
  const std::int64_t tiles = lead.num_tiles();
  for (std::int64_t first = 0, last = kFirstTiles; first < tiles; first = last, last *= 2) {
    mine.scan(lead, first, std::min(last, tiles), share);
    sync();
    lead.take_records(team.workers, share);
    sync();
  }
  if (share.member == 0) lead.finish(output);
}

void run_alone(DecodeWorker* worker, std::int64_t b, const dosa_output& output) {
  worker->start(b);
  worker->score_witnesses(*worker, {});
  worker->take_records(&worker, {});
  worker->scan(*worker, 0, worker->num_tiles(), {});
  worker->take_records(&worker, {});
  worker->finish(output);
}

/// Which requests of a call the threads share.
class Sharing {
 public:
  Sharing(const dosa_paged_problem& problem, int threads) : problem_(problem), threads_(threads) {
    for (std::int64_t b = 0; b < problem.batch; ++b) tokens_ += longest_context(problem, b);
    for (std::int64_t b = 0; b < problem.batch && !any_; ++b) any_ = shares(b);
  }
  [[nodiscard]] bool shares(std::int64_t b) const {
    const std::int64_t length = longest_context(problem_, b);
    return threads_ > 1 && length >= kLeastShared && length * kSharesPerThread * threads_ > tokens_;
  }
  /// Threads that have something to do.
  [[nodiscard]] int useful_threads() const {
    const std::int64_t requests = std::max<std::int64_t>(1, problem_.batch);
    return any_ ? threads_ : static_cast<int>(std::min<std::int64_t>(threads_, requests));
  }

 private:
  const dosa_paged_problem& problem_;
  int threads_;
  std::int64_t tokens_ = 0;
  bool any_ = false;
};

}  // namespace

DecodeLayout decode_layout(const dosa_paged_problem& problem, const dosa_options& options) {
  const std::size_t each = worker_bytes(problem, options);
  int threads = call_threads(options.threads);
  while (threads > 0 && shared_bytes(threads) + each * static_cast<std::size_t>(threads) >
                            options.workspace_limit) {
    --threads;
  }
  if (threads == 0) return {0, 0};
  return {threads, shared_bytes(threads) + each * static_cast<std::size_t>(threads)};
}

std::size_t least_decode_bytes(const dosa_paged_problem& problem, const dosa_options& options) {
  return shared_bytes(1) + worker_bytes(problem, options);
}

void paged_topk(const dosa_paged_problem& problem, const dosa_options& options,
                const dosa_output& output, void* workspace) {
  const auto begin_time = std::chrono::steady_clock::now();
  const int threads = decode_layout(problem, options).threads;
  const std::size_t each = worker_bytes(problem, options);
  auto* base = static_cast<std::byte*>(align_workspace(workspace));
  Arena shared(base + each * static_cast<std::size_t>(threads));
  Team team;
  team.place(shared, threads);
  std::fill(team.workers, team.workers + threads, nullptr);
  new (team.barrier) Barrier();
  const Sharing sharing(problem, threads);
#pragma omp parallel num_threads(sharing.useful_threads())
  {
    const FloatEnvironment environment;
    const Share share{team_member(), team_size()};
    team.workers[share.member] =
        make_worker(base + each * static_cast<std::size_t>(share.member), problem, options);
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      if (sharing.shares(b)) run_shared(team, b, share, output);
    }
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      if (!sharing.shares(b)) run_alone(team.workers[share.member], b, output);
    }
  }
  if (output.stats == nullptr) return;
  Sums total;
  for (int w = 0; w < threads; ++w) {
    if (team.workers[w] != nullptr) total.add(team.workers[w]->sums());
  }
  total.write(*output.stats);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_time;
  output.stats->seconds = seconds.count();
}

}  // namespace dosa::engine
