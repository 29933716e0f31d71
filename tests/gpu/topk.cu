// SPDX-License-Identifier: Apache-2.0
// The device engine against its own dense scores, sorted stably on the host.
//
// Usage: topk [quick|tiny]; tiny is for compute-sanitizer. Exit code 77: no sm_90 device
// (skipped).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/inputs.hpp"
#include "numeric/order_sm90.cuh"

namespace dosa::testing {
namespace {

int failures = 0;

void expect(bool ok, const std::string& name, const std::string& detail) {
  if (ok) return;
  ++failures;
  std::printf("FAILED %s: %s\n", name.c_str(), detail.c_str());
}

dosa_options default_options(int mode, int heads) {
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = mode;
  options.heads = heads;
  return options;
}

/// Scores of all rows by the dense kernel, as one host matrix (Q, N).
std::vector<float> dense_scores(const DeviceInputs& inputs) {
  const dosa_problem& problem = inputs.problem;
  const dosa_options options = default_options(DOSA_MODE_FULL, 0);
  size_t bytes = 0;
  dosa_cuda_workspace_bytes(&problem, &options, &bytes);
  const DeviceArray<uint8_t> workspace(bytes);
  const DeviceArray<float> scores(static_cast<size_t>(problem.num_queries * problem.num_keys));
  scores.poison();
  const dosa_status status =
      dosa_cuda_scores(&problem, &options, 0, problem.num_queries, scores.get(), problem.num_keys,
                       workspace.get(), bytes, nullptr);
  if (status != DOSA_OK) std::printf("scores: %s\n", dosa_last_error());
  DOSA_CUDA(cudaDeviceSynchronize());
  return scores.host();
}

/// The contract's answer for one row of scores.
std::vector<int32_t> reference_row(const float* scores, int start, int end, int keys, int topk) {
  start = std::clamp(start, 0, keys);
  end = std::clamp(end, 0, keys);
  std::vector<int32_t> ids(end > start ? end - start : 0);
  std::iota(ids.begin(), ids.end(), start);
  const auto better = [&](int32_t a, int32_t b) {
    const uint32_t code_a = numeric::order_code(scores[a]);
    const uint32_t code_b = numeric::order_code(scores[b]);
    return code_a != code_b ? code_a > code_b : a < b;
  };
  const size_t kept = std::min<size_t>(ids.size(), topk);
  if (kept < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + static_cast<int64_t>(kept), ids.end(), better);
  }
  ids.resize(kept);
  std::sort(ids.begin(), ids.end());
  ids.resize(topk, -1);
  return ids;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> scores;
  dosa_cuda_counters counters{};
};

Answer run_topk(const DeviceInputs& inputs, const dosa_options& options) {
  const dosa_problem& problem = inputs.problem;
  Answer answer;
  size_t bytes = 0;
  if (dosa_cuda_workspace_bytes(&problem, &options, &bytes) != DOSA_OK) {
    std::printf("workspace: %s\n", dosa_last_error());
    return answer;
  }
  const size_t count = static_cast<size_t>(problem.num_queries) * problem.topk;
  const DeviceArray<uint8_t> workspace(bytes);
  const DeviceArray<int32_t> ids(count);
  const DeviceArray<float> scores(count);
  workspace.poison();
  ids.poison();
  scores.poison();
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.get();
  output.indices_stride = problem.topk;
  output.scores = scores.get();
  output.scores_stride = problem.topk;
  const dosa_status status =
      dosa_cuda_topk(&problem, &options, &output, workspace.get(), bytes, nullptr);
  if (status != DOSA_OK) std::printf("topk: %s\n", dosa_last_error());
  answer.counters.struct_size = sizeof answer.counters;
  dosa_cuda_read_counters(workspace.get(), &answer.counters, nullptr);
  DOSA_CUDA(cudaDeviceSynchronize());
  answer.ids = ids.host();
  answer.scores = scores.host();
  return answer;
}

const char* mode_name(int mode) {
  static const char* const kNames[] = {"auto", "base", "full", "screen", "dosa"};
  return kNames[mode];
}

/// Compares every mode's ids and scores with the reference.
void check_modes(const std::string& name, const HostInputs& host, int topk,
                 const std::vector<int>& modes) {
  const DeviceInputs inputs(host, topk);
  const std::vector<float> scores = dense_scores(inputs);
  std::vector<std::vector<int32_t>> wanted;
  for (int row = 0; row < host.queries; ++row) {
    wanted.push_back(reference_row(scores.data() + static_cast<size_t>(row) * host.keys,
                                   host.k_start[row], host.k_end[row], host.keys, topk));
  }
  for (const int mode : modes) {
    for (const int heads : {6, 14, 22, 30}) {
      if (mode != DOSA_MODE_DOSA && heads != 14) continue;
      const dosa_options options = default_options(mode, heads);
      const Answer answer = run_topk(inputs, options);
      int wrong_rows = 0;
      int first_wrong = -1;
      int wrong_scores = 0;
      for (int row = 0; row < host.queries && !answer.ids.empty(); ++row) {
        const int32_t* const ids = answer.ids.data() + static_cast<size_t>(row) * topk;
        if (!std::equal(wanted[row].begin(), wanted[row].end(), ids)) {
          if (first_wrong < 0) first_wrong = row;
          ++wrong_rows;
          continue;
        }
        for (int i = 0; i < topk && ids[i] >= 0; ++i) {
          const float got = answer.scores[static_cast<size_t>(row) * topk + i];
          const float want = scores[static_cast<size_t>(row) * host.keys + ids[i]];
          if (numeric::order_code(got) != numeric::order_code(want)) ++wrong_scores;
        }
      }
      const std::string label = name + " " + mode_name(mode) + " r" + std::to_string(heads);
      expect(!answer.ids.empty() && wrong_rows == 0 && wrong_scores == 0, label,
             std::to_string(wrong_rows) + " wrong rows (first " + std::to_string(first_wrong) +
                 "), " + std::to_string(wrong_scores) + " wrong scores");
      std::printf("%-44s rows %d keys %d refined %lld recovered %lld %s\n", label.c_str(),
                  host.queries, host.keys, static_cast<long long>(answer.counters.refined),
                  static_cast<long long>(answer.counters.recovered_rows),
                  wrong_rows + wrong_scores == 0 ? "ok" : "WRONG");
    }
  }
}

const std::vector<int> kAllModes = {DOSA_MODE_BASE, DOSA_MODE_FULL, DOSA_MODE_DOSA, DOSA_MODE_AUTO};

void check_shapes(bool quick) {
  check_modes("real32", make_real(130, 70001, 32, 1), 2048, kAllModes);
  check_modes("real64", make_real(66, 65536, 64, 2), 2048, kAllModes);
  if (quick) return;
  HostInputs ragged = make_real(200, 50000, 32, 3);
  make_ragged(ragged, 4);
  check_modes("ragged32", ragged, 512, kAllModes);
  HostInputs causal = make_real(256, 131072, 32, 5);
  make_causal(causal);
  check_modes("causal32", causal, 2048, kAllModes);
  check_modes("int32", make_int(96, 40000, 32, 6), 2048, kAllModes);
  check_modes("int64", make_int(40, 65537, 64, 7), 512, kAllModes);
  check_modes("int5", make_int(33, 9000, 5, 8), 100, kAllModes);
  check_modes("real128", make_real(33, 40000, 128, 9), 4096, kAllModes);
  check_modes("real48", make_real(33, 40000, 48, 10), 1, kAllModes);
  for (const int keys : {0, 1, 63, 64, 65, 255, 256, 257, 511, 513, 2047, 2048, 2049, 8191, 8193}) {
    check_modes("edge" + std::to_string(keys), make_int(5, keys, 32, 11), 2048, kAllModes);
  }
}

/// Pilots and seeds: many rows and a long context, against the answers of dense scoring.
void check_seeded(const std::string& name, const HostInputs& host, int topk) {
  const DeviceInputs inputs(host, topk);
  const Answer wanted = run_topk(inputs, default_options(DOSA_MODE_FULL, 0));
  const Answer answer = run_topk(inputs, default_options(DOSA_MODE_DOSA, 0));
  int wrong = 0;
  for (size_t i = 0; i < wanted.ids.size(); ++i) wrong += wanted.ids[i] != answer.ids[i] ? 1 : 0;
  expect(!wanted.ids.empty() && wrong == 0, name, std::to_string(wrong) + " wrong ids");
  std::printf("%-44s rows %d keys %d refined %lld recovered %lld %s\n", name.c_str(), host.queries,
              host.keys, static_cast<long long>(answer.counters.refined),
              static_cast<long long>(answer.counters.recovered_rows), wrong == 0 ? "ok" : "WRONG");
}

void check_all_seeded() {
  HostInputs real = make_real(2100, 270001, 32, 20);
  make_causal(real);
  check_seeded("seeded real", real, 2048);
  check_seeded("seeded real k100", real, 100);
  HostInputs ints = make_int(2048, 262144, 32, 21);
  check_seeded("seeded int", ints, 512);
  make_ragged(ints, 22);
  check_seeded("seeded int ragged", ints, 1000);
  check_seeded("seeded plateau", make_dial(2050, 32, std::vector<float>(262200, 1.0f), 1.0f), 2048);
}

/// Every kernel on little data: screening begins behind the first 8K keys.
void check_tiny() {
  check_modes("tiny32", make_real(70, 20000, 32, 14), 64, kAllModes);
  check_modes("tiny64", make_real(10, 14000, 64, 15), 64, {DOSA_MODE_DOSA});
}

void check_special() {
  std::vector<float> plateau(50000, 1.0f);
  check_modes("plateau", make_dial(3, 32, plateau, 1.0f), 2048, kAllModes);
  check_modes("plateau-negative", make_dial(3, 32, plateau, -1.0f), 2048, kAllModes);
  std::vector<float> rising(60000);
  std::iota(rising.begin(), rising.end(), 1.0f);
  check_modes("rising", make_dial(4, 32, rising, 1.0f), 2048, kAllModes);
  std::reverse(rising.begin(), rising.end());
  check_modes("falling", make_dial(4, 64, rising, 1.0f), 2048, kAllModes);
  HostInputs odd = make_real(70, 66000, 32, 12);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float scales[] = {0.0f, -1.0f, 1e-40f, infinity, nan, -infinity};
  for (int i = 0; i < odd.keys; i += 97) odd.k_scale[i] = scales[i / 97 % 6];
  for (int i = 50; i < odd.keys; i += 1013) odd.k[static_cast<size_t>(i) * kDim + 5] = 0x7f;
  odd.weights[3 * 32 + 1] = nan;
  odd.weights[5 * 32 + 2] = infinity;
  odd.q[7 * 32 * kDim + 9] = 0xff;
  check_modes("odd values", odd, 2048, kAllModes);
}

void check_repeats(bool quick) {
  const HostInputs host = make_real(64, 100000, 32, 13);
  const DeviceInputs inputs(host, 2048);
  const dosa_options options = default_options(DOSA_MODE_DOSA, 14);
  const Answer first = run_topk(inputs, options);
  const int repeats = quick ? 2 : 20;
  for (int i = 1; i < repeats; ++i) {
    const Answer again = run_topk(inputs, options);
    expect(first.ids == again.ids &&
               std::memcmp(first.scores.data(), again.scores.data(), first.scores.size() * 4) == 0,
           "repeats", "run " + std::to_string(i) + " differs");
  }
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || device.major != 9) {
    std::printf("skipped: no sm_90 device\n");
    return 77;
  }
  const bool quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
  try {
    if (argc > 1 && std::strcmp(argv[1], "tiny") == 0) {
      dosa::testing::check_tiny();
      return dosa::testing::failures == 0 ? 0 : 1;
    }
    dosa::testing::check_shapes(quick);
    if (!quick) dosa::testing::check_special();
    if (!quick) dosa::testing::check_all_seeded();
    dosa::testing::check_repeats(quick);
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  std::printf("%s\n", dosa::testing::failures == 0 ? "all passed" : "SOME FAILED");
  return dosa::testing::failures == 0 ? 0 : 1;
}
