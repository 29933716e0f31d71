// SPDX-License-Identifier: Apache-2.0
// Times the device engine's modes on one problem, phase by phase, against the arithmetic floor.
//
// prefill --queries Q --keys N --heads H [--topk K] [--retained R]... [--modes full,dosa,base]
//         [--files PREFIX] [--positive P] [--repeats R] [--json FILE] [--peak TFLOPS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "device_inputs.cuh"
#include "engine/cuda_run.cuh"

namespace dosa::bench {
namespace {

struct Arguments {
  int64_t queries = 4096;
  int64_t keys = 131072;
  int heads = 32;
  int topk = 2048;
  int retained = 0;
  int positive = 6;
  int repeats = 5;
  double peak = 1400.0;  // TFLOP/s of a large FP8 product on this card, for the floor
  std::string modes = "base,full,dosa";
  std::string files;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--queries") arguments.queries = std::atoll(value);
    if (name == "--keys") arguments.keys = std::atoll(value);
    if (name == "--heads") arguments.heads = std::atoi(value);
    if (name == "--topk") arguments.topk = std::atoi(value);
    if (name == "--retained") arguments.retained = std::atoi(value);
    if (name == "--positive") arguments.positive = std::atoi(value);
    if (name == "--repeats") arguments.repeats = std::atoi(value);
    if (name == "--peak") arguments.peak = std::atof(value);
    if (name == "--modes") arguments.modes = value;
    if (name == "--files") arguments.files = value;
    if (name == "--json") arguments.json = value;
  }
  return arguments;
}

/// Events between phases; times per phase are summed.
class PhaseTimer {
 public:
  static void mark(void* user, const char* phase) { static_cast<PhaseTimer*>(user)->add(phase); }

  void add(const char* phase) {
    cudaEvent_t event = nullptr;
    DOSA_CUDA(cudaEventCreate(&event));
    DOSA_CUDA(cudaEventRecord(event));
    marks_.push_back({phase, event});
  }

  /// Milliseconds by phase and in total; forgets the marks.
  std::map<std::string, double> finish() {
    DOSA_CUDA(cudaDeviceSynchronize());
    std::map<std::string, double> times;
    for (size_t i = 0; i + 1 < marks_.size(); ++i) {
      float ms = 0.0f;
      DOSA_CUDA(cudaEventElapsedTime(&ms, marks_[i].event, marks_[i + 1].event));
      times[marks_[i].phase] += static_cast<double>(ms);
      times["total"] += static_cast<double>(ms);
    }
    for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
    marks_.clear();
    return times;
  }

 private:
  struct Mark {
    std::string phase;
    cudaEvent_t event;
  };
  std::vector<Mark> marks_;
};

struct Result {
  std::string mode;
  std::map<std::string, std::vector<double>> times;  // by phase, one per repeat
  dosa_cuda_counters counters{};
  std::vector<int32_t> ids;
};

int mode_of(const std::string& name) {
  if (name == "base") return DOSA_MODE_BASE;
  if (name == "full") return DOSA_MODE_FULL;
  if (name == "dosa") return DOSA_MODE_DOSA;
  return DOSA_MODE_AUTO;
}

Result measure(const Arguments& arguments, const DeviceProblem& inputs, const std::string& mode) {
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = mode_of(mode);
  options.heads = arguments.retained;
  size_t bytes = 0;
  if (dosa_cuda_workspace_bytes(&inputs.problem, &options, &bytes) != DOSA_OK) {
    throw std::runtime_error(dosa_last_error());
  }
  void* workspace = nullptr;
  int32_t* ids = nullptr;
  const size_t count = static_cast<size_t>(arguments.queries) * arguments.topk;
  DOSA_CUDA(cudaMalloc(&workspace, bytes));
  DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&ids), count * sizeof(int32_t)));
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids;
  output.indices_stride = arguments.topk;
  Result result;
  result.mode = mode;
  PhaseTimer timer;
  for (int i = -1; i < arguments.repeats; ++i) {  // the first one warms up
    engine::cuda_topk(inputs.problem, options, output, workspace, nullptr,
                      {&PhaseTimer::mark, &timer});
    for (const auto& [phase, ms] : timer.finish()) {
      if (i >= 0) result.times[phase].push_back(ms);
    }
  }
  result.counters.struct_size = sizeof result.counters;
  dosa_cuda_read_counters(workspace, &result.counters, nullptr);
  result.ids.resize(count);
  DOSA_CUDA(cudaMemcpy(result.ids.data(), ids, count * sizeof(int32_t), cudaMemcpyDeviceToHost));
  std::printf("%-6s workspace %.0f MiB\n", mode.c_str(), static_cast<double>(bytes) / 1048576.0);
  DOSA_CUDA(cudaFree(workspace));
  DOSA_CUDA(cudaFree(ids));
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

void print(const Arguments& arguments, const Result& result, double floor_ms, bool same) {
  std::printf("%-6s total %.3f ms (spread %.3f)  dense floor %.3f  ids %s\n", result.mode.c_str(),
              median(result.times.at("total")), spread(result.times.at("total")), floor_ms,
              same ? "same" : "DIFFERENT");
  for (const auto& [phase, times] : result.times) {
    if (phase != "total") std::printf("  %-9s %8.3f ms\n", phase.c_str(), median(times));
  }
  const double pairs = static_cast<double>(arguments.queries) * static_cast<double>(arguments.keys);
  const double group = arguments.heads <= 32 ? 4 : (arguments.heads <= 64 ? 2 : 1);
  std::printf("  refined share of groups' keys %.4f, recovered rows %lld\n",
              static_cast<double>(result.counters.refined) * group / pairs,
              static_cast<long long>(result.counters.recovered_rows));
}

void write_json(const Arguments& arguments, const std::vector<Result>& results, double floor_ms) {
  std::FILE* const file = std::fopen(arguments.json.c_str(), "w");
  if (file == nullptr) throw std::runtime_error(arguments.json + ": cannot be written");
  std::fprintf(file,
               "{\"queries\": %lld, \"keys\": %lld, \"heads\": %d, \"topk\": %d, \"retained\": %d, "
               "\"files\": \"%s\", \"dense_floor_ms\": %.4f, \"results\": [",
               static_cast<long long>(arguments.queries), static_cast<long long>(arguments.keys),
               arguments.heads, arguments.topk, arguments.retained, arguments.files.c_str(),
               floor_ms);
  const char* between = "";
  for (const Result& result : results) {
    std::fprintf(file, "%s{\"mode\": \"%s\", \"refined\": %lld, \"recovered\": %lld", between,
                 result.mode.c_str(), static_cast<long long>(result.counters.refined),
                 static_cast<long long>(result.counters.recovered_rows));
    for (const auto& [phase, times] : result.times) {
      std::fprintf(file, ", \"%s_ms\": %.4f, \"%s_spread_ms\": %.4f", phase.c_str(), median(times),
                   phase.c_str(), spread(times));
    }
    std::fprintf(file, "}");
    between = ", ";
  }
  std::fprintf(file, "]}\n");
  std::fclose(file);
}

void run(const Arguments& arguments) {
  const DeviceProblem inputs(arguments.queries, arguments.keys, arguments.heads, arguments.topk);
  if (arguments.files.empty()) {
    fill_random(inputs, arguments.positive, 1);
  } else {
    fill_from_files(inputs, arguments.files);
  }
  const double flops = 2.0 * 128.0 * static_cast<double>(arguments.queries) *
                       static_cast<double>(arguments.keys) * arguments.heads;
  const double floor_ms = flops / (arguments.peak * 1e12) * 1e3;
  std::printf("Q %lld N %lld H %d K %d retained %d %s\n", static_cast<long long>(arguments.queries),
              static_cast<long long>(arguments.keys), arguments.heads, arguments.topk,
              arguments.retained, arguments.files.empty() ? "random" : arguments.files.c_str());
  std::vector<Result> results;
  for (size_t at = 0; at <= arguments.modes.size();) {
    const size_t comma = std::min(arguments.modes.find(',', at), arguments.modes.size());
    results.push_back(measure(arguments, inputs, arguments.modes.substr(at, comma - at)));
    print(arguments, results.back(), floor_ms, results.back().ids == results.front().ids);
    at = comma + 1;
  }
  if (!arguments.json.empty()) write_json(arguments, results, floor_ms);
}

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  try {
    dosa::bench::run(dosa::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "prefill: %s\n", error.what());
    return 1;
  }
  return 0;
}
