// SPDX-License-Identifier: Apache-2.0
// bench_calibrate TRACE: what the kernels cost per key on real data, and the constants of
// src/engine/cost_model.hpp fitted to it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cost_model.hpp"
#include "engine/schedule.hpp"
#include "io/trace.hpp"
#include "kernel_bench.hpp"
#include "measure.hpp"
#include "select/emit.hpp"
#include "select/records.hpp"

namespace {

using namespace dosa;
using namespace dosa::bench;

constexpr double kLeastSeconds = 2e-3;  // of one sample: a thousand times the clock's resolution

/// One kernel at one size: `work` does `items` of its unit.
struct Kernel {
  std::string name;
  std::string unit;
  double x = 0.0;  // what the cost model multiplies the slope with; 0: not fitted
  double items = 1.0;
  std::function<void()> work;
  int calls = 1;
  std::vector<double> cycles = {};  // per item
};

double thread_seconds(const std::function<void()>& work) {
  const double begin = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
  work();
  return clock_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/// Clock rate of the core, by a chain of additions of one cycle each.
double cycles_per_second() {
  constexpr std::int64_t kSteps = 4'000'000;
  std::uint64_t x = 0;
  const double seconds = thread_seconds([&] {
    for (std::int64_t n = 0; n < kSteps; ++n) asm volatile("add $1, %0" : "+r"(x));
  });
  return static_cast<double>(kSteps) / seconds;
}

/// All kernels by turns, so that a drift of the machine meets all of them.
std::vector<double> measure(std::vector<Kernel>& kernels, int repetitions) {
  std::vector<double> rates;
  for (Kernel& kernel : kernels) {
    kernel.work();
    const double seconds = thread_seconds(kernel.work);
    kernel.calls = std::max(1, static_cast<int>(std::ceil(kLeastSeconds / seconds)));
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    rates.push_back(cycles_per_second());
    for (Kernel& kernel : kernels) {
      const double seconds = thread_seconds([&] {
        for (int n = 0; n < kernel.calls; ++n) kernel.work();
      });
      kernel.cycles.push_back(seconds * rates.back() / (kernel.items * kernel.calls));
    }
  }
  return rates;
}

struct Line {
  double fixed = 0.0, slope = 0.0;
  double worst = 0.0;  // largest relative residual
};

/// Least squares of relative residuals over the kernels called `name`.
Line fit(const std::vector<Kernel>& kernels, const std::string& name) {
  double s = 0.0;
  double sx = 0.0;
  double sxx = 0.0;
  double sy = 0.0;
  double sxy = 0.0;
  for (const Kernel& kernel : kernels) {
    if (kernel.name != name) continue;
    const double y = median(kernel.cycles);
    const double weight = 1 / (y * y);
    s += weight;
    sx += weight * kernel.x;
    sxx += weight * kernel.x * kernel.x;
    sy += weight * y;
    sxy += weight * kernel.x * y;
  }
  Line line;
  line.slope = (s * sxy - sx * sy) / (s * sxx - sx * sx);
  line.fixed = (sy - line.slope * sx) / s;
  for (const Kernel& kernel : kernels) {
    if (kernel.name != name) continue;
    const double predicted = line.fixed + line.slope * kernel.x;
    line.worst = std::max(line.worst, std::fabs(predicted / median(kernel.cycles) - 1));
  }
  return line;
}

using Benches = std::vector<std::unique_ptr<KernelBench>>;

constexpr double kPairsOfPass = static_cast<double>(kBenchTiles) * kBenchRows * plan::kTileKeys;

std::string size_of(const char* what, int count, int dim) {
  return std::string(what) + " " + std::to_string(count) + ", D " + std::to_string(dim);
}

void add_screening(const dosa_problem& problem, Benches& benches, std::vector<Kernel>& kernels) {
  constexpr int kHeads = 64;
  for (const int dim : {64, 128}) {
    benches.push_back(std::make_unique<KernelBench>(problem, kHeads, dim));
    KernelBench& bench = *benches.back();
    const int most = bench.certify(kHeads);
    for (const int rows : {4, 8, 12, 16, 24, 32, 48, 64}) {
      if (rows > most) continue;
      kernels.push_back(
          {"screen_tile", size_of("R'", rows, dim), rows * dim / 2.0, kPairsOfPass, [&bench, rows] {
             bench.set_screening_rows(rows);
             bench.screen_all();
           }});
    }
  }
}

void add_scoring(const dosa_problem& problem, Benches& benches, std::vector<Kernel>& kernels,
                 const std::vector<std::uint16_t>& pick) {
  for (const int dim : {64, 128}) {
    for (const int heads : {16, 32, 64, 128}) {
      benches.push_back(std::make_unique<KernelBench>(problem, heads, dim));
      KernelBench& bench = *benches.back();
      const double x = plan::padded_heads(heads) / plan::kHeadLanes * dim / 2.0;
      const auto count = static_cast<int>(pick.size());
      kernels.push_back({"refine_keys", size_of("H", heads, dim), x,
                         static_cast<double>(kBenchTiles) * kBenchRows * count,
                         [&bench, &pick, count] { bench.refine_some(pick.data(), count); }});
      kernels.push_back({"score_keys", size_of("H", heads, dim), x, kPairsOfPass,
                         [&bench] { bench.score_all(); }});
      if (heads != 32 || dim != 128) continue;
      for (const int few : {1, 2, 3, 5}) {
        kernels.push_back({"refine_keys, " + std::to_string(few), "key, H 32, D 128", 0.0,
                           static_cast<double>(kBenchTiles) * kBenchRows * few,
                           [&bench, &pick, few] { bench.refine_some(pick.data(), few); }});
      }
    }
  }
}

void add_preparation(const dosa_problem& problem, Benches& benches, std::vector<Kernel>& kernels,
                     const std::vector<std::int32_t>& listed) {
  for (const int dim : {64, 128}) {
    benches.push_back(std::make_unique<KernelBench>(problem, 32, dim));
    KernelBench& bench = *benches.back();
    const std::string suffix = ", D " + std::to_string(dim);
    kernels.push_back({"build_tile", "key" + suffix, 0.0, kBenchTiles * plan::kTileKeys, [&bench] {
                         for (int t = 0; t < kBenchTiles; ++t) bench.build(t);
                       }});
    kernels.push_back({"build_tile (list)", "key" + suffix, 0.0, plan::kTileKeys,
                       [&bench, &listed] { bench.build_listed(listed.data()); }});
    kernels.push_back({"pack_query", "row, H 32" + suffix, 0.0, kBenchRows, [&bench] {
                         for (int r = 0; r < kBenchRows; ++r) bench.pack(r);
                       }});
    kernels.push_back({"certificate, r 15", "row, H 32" + suffix, 0.0, kBenchRows,
                       [&bench] { bench.certify(15); }});
  }
}

/// Unordered records, as a scan collects them, K and the buffer's slack. Many different ones, since
/// a branch predictor would learn a few by heart.
class RecordSets {
 public:
  explicit RecordSets(int topk) : count_(topk + select::RecordBuffer::slack(topk)) {
    std::uint64_t state = 1;
    for (int n = 0; n < kSets * count_; ++n) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto score = static_cast<float>(static_cast<double>(state >> 32) * 0x1p-32);
      source_.push_back(make_record(score_code(score), n % count_));
    }
    work_.resize(static_cast<std::size_t>(count_));
    scratch_.resize(static_cast<std::size_t>(count_));
    ids_.resize(static_cast<std::size_t>(topk));
  }
  [[nodiscard]] int count() const { return count_; }
  /// A fresh copy of the next set.
  Record* next() {
    const Record* set = source_.data() + static_cast<std::ptrdiff_t>(next_) * count_;
    next_ = (next_ + 1) % kSets;
    std::copy(set, set + count_, work_.begin());
    return work_.data();
  }
  Record* scratch() { return scratch_.data(); }
  std::int32_t* ids() { return ids_.data(); }

 private:
  static constexpr int kSets = 64;
  int count_;
  int next_ = 0;
  std::vector<Record> source_, work_, scratch_;
  std::vector<std::int32_t> ids_;
};

void add_selection(std::vector<Kernel>& kernels) {
  for (const int topk : {256, 2048}) {
    auto sets = std::make_shared<RecordSets>(topk);
    const std::string unit = "record, K " + std::to_string(topk);
    const auto add = [&](const char* name, int items, const std::function<void()>& work) {
      kernels.push_back({name, unit, 0.0, static_cast<double>(items), work});
    };
    add("keep_greatest", sets->count(),
        [sets, topk] { select::keep_greatest(sets->next(), sets->count(), topk); });
    add("std::nth_element", sets->count(), [sets, topk] {
      Record* records = sets->next();
      std::nth_element(records, records + (topk - 1), records + sets->count(), std::greater<>());
    });
    add("emit_row", topk, [sets, topk] {
      select::emit_row(sets->next(), topk, topk, DOSA_ORDER_ID, {}, sets->scratch(), sets->ids(),
                       nullptr);
    });
  }
}

void print_line(const std::vector<Kernel>& kernels, const char* kernel, const char* fixed,
                const char* slope, double fixed_now, double slope_now) {
  const Line line = fit(kernels, kernel);
  std::printf("  %-18s = %7.2f   (now %7.2f)\n", fixed, line.fixed, fixed_now);
  std::printf("  %-18s = %7.4f   (now %7.4f)   %s, largest residual %.1f%%\n", slope, line.slope,
              slope_now, kernel, 100 * line.worst);
}

int run(const std::string& path, int repetitions) {
  const io::Trace trace = io::Trace::open(path);
  std::vector<std::uint16_t> pick;  // an eighth of a tile, as survivors lie
  std::vector<std::int32_t> listed(plan::kTileKeys);
  std::int32_t ids[plan::kTileKeys / 8];
  engine::spread_sample({0, plan::kTileKeys}, plan::kTileKeys / 8, ids);
  for (const std::int32_t id : ids) pick.push_back(static_cast<std::uint16_t>(id));
  engine::spread_sample({0, trace.problem().num_keys}, plan::kTileKeys, listed.data());

  Benches benches;
  std::vector<Kernel> kernels;
  add_screening(trace.problem(), benches, kernels);
  add_scoring(trace.problem(), benches, kernels, pick);
  add_preparation(trace.problem(), benches, kernels, listed);
  add_selection(kernels);
  const std::vector<double> rates = measure(kernels, repetitions);

  std::printf("cpu: %s, simd: %s, one thread at %.2f GHz, %d repetitions\n", cpu_model().c_str(),
              plan::simd_name(), median(rates) / 1e9, repetitions);
  std::printf("%-18s %-18s %12s %6s\n", "kernel", "per", "cycles", "+-%");
  for (const Kernel& kernel : kernels) {
    const bool pairs = kernel.x > 0;
    std::printf("%-18s %-18s %12.2f %6.1f\n", kernel.name.c_str(),
                (std::string(pairs ? "key, " : "") + kernel.unit).c_str(), median(kernel.cycles),
                100 * spread(kernel.cycles));
  }
  const engine::CostModel model;
  std::printf("\nsrc/engine/cost_model.hpp, cycles:\n");
  print_line(kernels, "refine_keys", "refine_fixed", "refine_per_pair", model.refine_fixed,
             model.refine_per_pair);
  print_line(kernels, "screen_tile", "screen_fixed", "screen_per_pair", model.screen_fixed,
             model.screen_per_pair);
  const Line score = fit(kernels, "score_keys");
  std::printf("  for comparison, score_keys: %.2f + %.4f per 16 heads and pair\n", score.fixed,
              score.slope);
  double sum = 0.0;
  for (const auto& bench : benches) sum += bench->checksum();
  std::printf("checksum %g\n", sum);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: bench_calibrate TRACE [REPETITIONS]\n");
    return 2;
  }
  try {
    return run(argv[1], argc == 3 ? std::atoi(argv[2]) : 15);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_calibrate: %s\n", error.what());
    return 1;
  }
}
