// SPDX-License-Identifier: Apache-2.0
// bench_decode: the queries of a trace replayed as decode steps over a paged cache, with witnesses
// of the sequence itself, with useless ones, with none, and against every key scored and selected.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "decode_cache.hpp"
#include "measure.hpp"
#include "plan/operands.hpp"
#include "workload.hpp"

namespace {

using namespace dosa::bench;
using nlohmann::json;

enum class Memory { kNone, kOwn, kUseless };

/// A way of taking a step.
struct Contender {
  const char* name;
  dosa_mode mode;
  Memory memory;
  bool contiguous = false;  // dosa_topk on gathered keys
  std::vector<Lap> laps = {};
  std::vector<double> records = {};  // per row
};

struct Arguments {
  std::vector<std::string> files, made;
  std::vector<std::int64_t> keys = {4096, 16384, 65536, 131072, 262144, 1048576};
  std::int64_t steps = 64, batch = 1;
  int topk = 2048, threads = 2, page_size = 64;
  std::uint64_t seed = 1;
  std::string json_path;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
}

Arguments parse(CLI::App& app, int argc, char** argv) {
  Arguments arguments;
  std::string made;
  std::string keys;
  app.add_option("FILE", arguments.files, "traces; each is cut to its last N keys");
  app.add_option("--gen", made, "made inputs: real,int,residue,glm52:8,dsv32:16:LAYER,...");
  app.add_option("--keys", keys, "N,N,...; those over an input's length are left out");
  app.add_option("--steps", arguments.steps, "query rows, the last ones, one after another");
  app.add_option("--batch", arguments.batch, "requests, each with its own copy of the keys");
  app.add_option("--page-size", arguments.page_size);
  app.add_option("-k,--topk", arguments.topk);
  app.add_option("--threads", arguments.threads);
  app.add_option("--seed", arguments.seed, "of the made inputs");
  app.add_option("--json", arguments.json_path, "write all samples here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  arguments.made = split(made);
  if (!keys.empty()) arguments.keys.clear();
  for (const std::string& n : split(keys)) arguments.keys.push_back(std::stoll(n));
  if (arguments.files.empty() && arguments.made.empty()) arguments.made = {"glm52:8"};
  return arguments;
}

/// One input at one length: all contenders take each step by turns, and must agree.
class Replay {
 public:
  Replay(const Workload& workload, const Arguments& arguments)
      : workload_(workload),
        arguments_(arguments),
        cache_(workload.problem, arguments.batch, arguments.page_size) {
    std::size_t bytes = 0;
    dosa::check(dosa_witness_bytes(arguments.topk, &bytes));
    for (auto* states : {&own_, &useless_}) {
      states->assign(static_cast<std::size_t>(arguments.batch) * bytes / 4, 0);
    }
    state_words_ = bytes / 4;
  }

  std::vector<Contender> run() {
    std::vector<Contender> all = {{"witnesses", DOSA_MODE_AUTO, Memory::kOwn},
                                  {"useless", DOSA_MODE_AUTO, Memory::kUseless},
                                  {"none", DOSA_MODE_AUTO, Memory::kNone},
                                  {"every key", DOSA_MODE_BASE, Memory::kNone},
                                  {"contiguous", DOSA_MODE_FULL, Memory::kNone, true}};
    for (std::int64_t step = 0; step < workload_.problem.num_queries; ++step) {
      std::vector<std::int32_t> expected;
      for (std::size_t n = 0; n < all.size(); ++n) {  // another one goes first each time
        Contender& contender = all[(n + static_cast<std::size_t>(step)) % all.size()];
        take(contender, step);
        if (expected.empty()) expected = ids_;
        if (expected != ids_) throw std::runtime_error(std::string(contender.name) + " differs");
      }
    }
    return all;
  }

 private:
  void take(Contender& contender, std::int64_t step) {
    if (contender.memory == Memory::kUseless) scramble(workload_.end[step]);
    dosa_options options = dosa::default_options();
    options.mode = contender.mode;
    options.threads = arguments_.threads;
    ids_.assign(static_cast<std::size_t>(arguments_.batch * arguments_.topk), 0);
    dosa_stats stats{};
    stats.struct_size = sizeof stats;
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids_.data();
    output.indices_stride = arguments_.topk;
    output.stats = &stats;
    const auto work = [&] {
      contender.contiguous ? call_prefill(step, options, output)
                           : call_step(contender, step, options, output);
    };
    // The first step of a sequence brings memory and threads up.
    if (step == 0 && contender.memory != Memory::kOwn) work();
    const Lap lap = time_once(work);
    if (step == 0) return;
    contender.laps.push_back(lap);
    contender.records.push_back(static_cast<double>(stats.records) /
                                static_cast<double>(arguments_.batch));
  }

  void call_step(const Contender& contender, std::int64_t step, const dosa_options& options,
                 const dosa_output& output) {
    dosa_paged_problem problem = cache_.step(workload_.problem, step, workload_.end[step]);
    problem.topk = arguments_.topk;
    if (contender.memory != Memory::kNone) {
      problem.witnesses = contender.memory == Memory::kOwn ? own_.data() : useless_.data();
      problem.witness_stride = static_cast<std::int64_t>(4 * state_words_);
      problem.witness_count = static_cast<std::int32_t>(arguments_.batch);
    }
    std::size_t bytes = 0;
    dosa::check(dosa_paged_workspace_bytes(&problem, &options, &bytes));
    if (workspace_.size() < bytes) workspace_.resize(bytes);
    dosa::check(dosa_paged_topk(&problem, &options, &output, workspace_.data(), bytes));
  }

  /// What can be done without pages: the row of each request by dosa_topk, one after another, as
  /// requests do not share their keys.
  void call_prefill(std::int64_t step, const dosa_options& options, const dosa_output& output) {
    dosa_problem problem = workload_.problem;
    problem.topk = arguments_.topk;
    problem.num_queries = 1;
    problem.q += step * problem.q_stride;
    problem.weights += step * problem.weights_stride;
    problem.k_start = nullptr;
    problem.k_end = workload_.end.data() + step;
    std::size_t bytes = 0;
    dosa::check(dosa_workspace_bytes(&problem, &options, &bytes));
    if (workspace_.size() < bytes) workspace_.resize(bytes);
    dosa_output one = output;
    for (std::int64_t b = 0; b < arguments_.batch; ++b) {
      one.indices = output.indices + b * arguments_.topk;
      dosa::check(dosa_topk(&problem, &options, &one, workspace_.data(), bytes));
    }
  }

  /// Random distinct tokens: valid witnesses of nothing.
  void scramble(std::int32_t length) {
    std::uniform_int_distribution<std::int32_t> any(0, length - 1);
    std::vector<std::int32_t> ids(state_words_ - 1);
    for (std::int64_t b = 0; b < arguments_.batch; ++b) {
      for (auto& id : ids) id = any(random_);
      dosa::check(dosa_witness_set(useless_.data() + static_cast<std::size_t>(b) * state_words_,
                                   arguments_.topk, ids.data(),
                                   static_cast<std::int64_t>(ids.size())));
    }
  }

  const Workload& workload_;
  const Arguments& arguments_;
  DecodeCache cache_;
  std::mt19937_64 random_{7};
  std::vector<std::uint32_t> own_, useless_;
  std::size_t state_words_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<std::byte> workspace_;
};

std::vector<double> times(const Contender& contender, bool cpu) {
  std::vector<double> seconds;
  for (const Lap& lap : contender.laps) seconds.push_back(cpu ? lap.cpu : lap.wall);
  return seconds;
}

/// Every key's time over this one's, step by step.
std::vector<double> speedups(const std::vector<Contender>& all, const Contender& contender) {
  const auto base = std::find_if(all.begin(), all.end(),
                                 [](const Contender& c) { return c.mode == DOSA_MODE_BASE; });
  std::vector<double> ratio = times(*base, false);
  const std::vector<double> other = times(contender, false);
  for (std::size_t n = 0; n < ratio.size(); ++n) ratio[n] /= other[n];
  return ratio;
}

json report(const std::string& input, const Workload& part, const Arguments& arguments,
            const std::vector<Contender>& all) {
  json modes = json::array();
  for (const Contender& contender : all) {
    const std::vector<double> x = speedups(all, contender);
    std::printf("%-18.18s %8lld %4lld %3d  %-10s %10.3f %5.1f %10.3f %9.0f  %6.3f %5.1f\n",
                input.c_str(), static_cast<long long>(part.problem.num_keys),
                static_cast<long long>(arguments.batch), part.problem.num_heads, contender.name,
                1e3 * median(times(contender, false)), 100 * spread(times(contender, false)),
                1e3 * median(times(contender, true)), median(contender.records), median(x),
                100 * spread(x));
    modes.push_back({{"mode", contender.name},
                     {"wall_s", times(contender, false)},
                     {"cpu_s", times(contender, true)},
                     {"records", contender.records}});
  }
  std::fflush(stdout);
  return {{"input", input},       {"N", part.problem.num_keys},
          {"B", arguments.batch}, {"H", part.problem.num_heads},
          {"K", arguments.topk},  {"modes", modes}};
}

int run(int argc, char** argv) {
  CLI::App app("Decode steps with and without witnesses, in one run");
  const Arguments arguments = parse(app, argc, argv);
  json out = {{"cpu", cpu_model()},
              {"simd", dosa::plan::simd_name()},
              {"threads", arguments.threads},
              {"commit", command_line_output("git describe --always --dirty 2>/dev/null")},
              {"compiler", __VERSION__},
              {"page_size", arguments.page_size},
              {"seed", arguments.seed}};
  for (const auto& [name, value] : out.items()) {
    std::printf("%s: %s\n", name.c_str(), value.dump().c_str());
  }
  std::printf("%-18s %8s %4s %3s  %-10s %10s %5s %10s %9s  %6s %5s\n", "input", "N", "B", "H",
              "mode", "ms/step", "+-%", "CPU ms", "records", "x", "+-%");
  const auto visit = [&](const Workload& whole) {
    for (const std::int64_t keys : arguments.keys) {
      if (keys > whole.problem.num_keys || keys <= arguments.steps) continue;
      const Workload part = cut(whole, arguments.steps, keys);
      out["cells"].push_back(report(whole.name, part, arguments, Replay(part, arguments).run()));
    }
  };
  const std::int64_t longest = *std::max_element(arguments.keys.begin(), arguments.keys.end());
  visit_workloads(arguments.files, arguments.made, std::min(arguments.steps, longest), longest,
                  arguments.seed, visit);
  if (arguments.json_path.empty()) return 0;
  std::ofstream file(arguments.json_path);
  file << out.dump(1) << '\n';
  return file.good() ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  return dosa::bench::run_program("bench_decode", 1, [&] { return run(argc, argv); });
}
