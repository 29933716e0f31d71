// SPDX-License-Identifier: Apache-2.0
// Looks for pairs whose bound is below their score, on the device, over many made problems.
//
// search [--rows Q] [--keys N] [--seed S] [--model NAME] [--score-model sm90|mma_f16] [--answers 1]
//        [--json FILE]
//
// Every model of search_inputs.cuh with H = 5, 32, 48, 64, 128 heads and R' = 8, 16, 24, 32 rows
// per query: 240 problems of Q x N pairs. Exit status 1: a violation was found, or with --answers
// an answer of the engine is wrong.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda_audit.cuh"
#include "search_inputs.cuh"

namespace dosa::bench {
namespace {

constexpr int kHeads[] = {5, 32, 48, 64, 128};
constexpr int kScreenRows[] = {8, 16, 24, 32};
constexpr int kTopk = 64;

struct Arguments {
  int64_t rows = 1024;
  int64_t keys = 458752;
  uint64_t seed = 1;
  std::string model;  // empty: all
  std::string score_model = "sm90";
  bool answers = false;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--rows") arguments.rows = std::atoll(value);
    if (name == "--keys") arguments.keys = std::atoll(value);
    if (name == "--seed") arguments.seed = std::strtoull(value, nullptr, 10);
    if (name == "--model") arguments.model = value;
    if (name == "--score-model") arguments.score_model = value;
    if (name == "--answers") arguments.answers = std::atoi(value) != 0;
    if (name == "--json") arguments.json = value;
  }
  if (arguments.score_model != "sm90" && arguments.score_model != "mma_f16") {
    throw std::runtime_error("--score-model: found " + arguments.score_model +
                             ", expected sm90 or mma_f16");
  }
  return arguments;
}

struct Found {
  int model, heads, screen_rows;
  dosa_cuda_verification report;
};

/// The last rows see all keys but the causal triangle's; here every row sees every key.
void open_windows(const DeviceProblem& inputs) {
  const std::vector<int32_t> all(static_cast<size_t>(inputs.problem.num_queries),
                                 static_cast<int32_t>(inputs.problem.num_keys));
  DOSA_CUDA(
      cudaMemcpy(inputs.k_end, all.data(), all.size() * sizeof(int32_t), cudaMemcpyHostToDevice));
}

Found audit(const Arguments& arguments, const DeviceProblem& memory, int model, int heads,
            int screen_rows) {
  DeviceProblem inputs = memory;  // the same arrays, laid out for fewer heads
  inputs.problem.num_heads = heads;
  inputs.problem.q_stride = int64_t{heads} * SearchInputs::kDim;
  inputs.problem.weights_stride = heads;
  const uint64_t seed =
      arguments.seed << 32 ^ static_cast<uint64_t>(model << 16 ^ heads << 8 ^ screen_rows);
  fill_search(inputs, {static_cast<Model>(model), seed, heads});
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = DOSA_MODE_DOSA;
  options.score_model = arguments.score_model == "mma_f16" ? DOSA_MODEL_MMA_F16 : DOSA_MODEL_SM90;
  options.heads = screen_rows - 2;  // retained; two rows are the aggregate's
  Found found{model, heads, screen_rows, {}};
  engine::cuda_audit(inputs.problem, options, arguments.answers, found.report);
  return found;
}

void print(const Found& found) {
  const dosa_cuda_verification& report = found.report;
  std::printf(
      "%-10s H %3d R' %2d  %lld pairs, %lld bounded, %lld violations, %lld wrong rows, margin "
      "%.6g at (%lld, %lld) U %.9g s %.9g, used %.5f at (%lld, %lld)\n",
      kModelNames[found.model], found.heads, found.screen_rows,
      static_cast<long long>(report.visible), static_cast<long long>(report.bounded),
      static_cast<long long>(report.violations), static_cast<long long>(report.rows_different),
      report.min_margin, static_cast<long long>(report.witness_row),
      static_cast<long long>(report.witness_key), static_cast<double>(report.witness_bound),
      static_cast<double>(report.witness_score), static_cast<double>(report.most_used),
      static_cast<long long>(report.used_row), static_cast<long long>(report.used_key));
}

/// A number as JSON has it: null for what is not finite.
std::string json_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return std::isfinite(value) ? text : "null";
}

void write_json(const Arguments& arguments, const std::vector<Found>& all) {
  std::FILE* const file = std::fopen(arguments.json.c_str(), "w");
  if (file == nullptr) throw std::runtime_error(arguments.json + ": cannot be written");
  std::fprintf(
      file,
      "{\"score_model\": \"%s\", \"rows\": %lld, \"keys\": %lld, \"seed\": %llu, \"topk\": %d, "
      "\"problems\": [",
      arguments.score_model.c_str(), static_cast<long long>(arguments.rows),
      static_cast<long long>(arguments.keys), static_cast<unsigned long long>(arguments.seed),
      kTopk);
  const char* between = "\n";
  for (const Found& found : all) {
    const dosa_cuda_verification& report = found.report;
    std::fprintf(file,
                 "%s{\"model\": \"%s\", \"heads\": %d, \"screen_rows\": %d, \"pairs\": %lld, "
                 "\"bounded\": %lld, \"violations\": %lld, ",
                 between, kModelNames[found.model], found.heads, found.screen_rows,
                 static_cast<long long>(report.visible), static_cast<long long>(report.bounded),
                 static_cast<long long>(report.violations));
    if (report.witness_row >= 0) {
      std::fprintf(
          file, "\"min_margin\": %s, \"row\": %lld, \"key\": %lld, \"bound\": %s, \"score\": %s, ",
          json_number(report.min_margin).c_str(), static_cast<long long>(report.witness_row),
          static_cast<long long>(report.witness_key),
          json_number(static_cast<double>(report.witness_bound)).c_str(),
          json_number(static_cast<double>(report.witness_score)).c_str());
    }
    std::fprintf(file, "\"most_used\": %s, \"seconds\": %.6f}",
                 json_number(static_cast<double>(report.most_used)).c_str(), report.seconds);
    between = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

int run(const Arguments& arguments) {
  const DeviceProblem memory(arguments.rows, arguments.keys, 128, kTopk);
  open_windows(memory);
  std::vector<Found> all;
  int64_t pairs = 0;
  int64_t bad = 0;
  double seconds = 0;
  for (int model = 0; model < kModels; ++model) {
    if (!arguments.model.empty() && arguments.model != kModelNames[model]) continue;
    float most_used = 0.0f;
    int64_t bounded = 0;
    for (const int heads : kHeads) {
      for (const int screen_rows : kScreenRows) {
        all.push_back(audit(arguments, memory, model, heads, screen_rows));
        const dosa_cuda_verification& report = all.back().report;
        pairs += report.visible;
        bounded += report.bounded;
        seconds += report.seconds;
        if (report.used_row >= 0) most_used = std::max(most_used, report.most_used);
        if (report.violations == 0 && report.rows_different == 0) continue;
        bad += report.violations + report.rows_different;
        print(all.back());
      }
    }
    std::printf("%-10s %lld bounded pairs, at most %.4f of the allowance needed\n",
                kModelNames[model], static_cast<long long>(bounded),
                static_cast<double>(most_used));
  }
  std::printf("%lld pairs, %lld violations or wrong rows, %.1f s of audit\n",
              static_cast<long long>(pairs), static_cast<long long>(bad), seconds);
  if (!arguments.json.empty()) write_json(arguments, all);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || device.major != 9) {
    std::printf("skipped: no sm_90 device\n");
    return 77;
  }
  try {
    return dosa::bench::run(dosa::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "search: %s\n", error.what());
    return 2;
  }
}
