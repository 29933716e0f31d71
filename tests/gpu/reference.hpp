// SPDX-License-Identifier: Apache-2.0
// What every test of the device engine needs: a call and the contract's answer.
#pragma once

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "engine/cuda_model.hpp"
#include "gpu/inputs.hpp"
#include "gpu/report.hpp"
#include "numeric/order_sm90.cuh"

namespace dosa::testing {

/// The score model of default_options; every test sets it at most once.
inline int score_model = DOSA_MODEL_DEFAULT;

/// Sets the model by name; false where there is no device for it.
inline bool choose_model(const std::string& name) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
  const int capability = engine::device_capability();
  for (const int model : {DOSA_MODEL_SM90, DOSA_MODEL_MMA_F16, DOSA_MODEL_MMA_FP8}) {
    if (name == engine::model_name(model)) score_model = model;
  }
  if (score_model == DOSA_MODEL_DEFAULT) return engine::default_model(capability) != 0;
  return engine::can_run_model(score_model, capability);
}

inline dosa_options default_options(int mode, int heads) {
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = mode;
  options.heads = heads;
  options.score_model = score_model;
  return options;
}

/// Scores of all rows by the dense kernel, as one host matrix (Q, N).
inline std::vector<float> dense_scores(const DeviceInputs& inputs) {
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

/// The contract's answer for one row of scores; forced keys are +Inf in `scores` already.
inline std::vector<int32_t> reference_row(const float* scores, int start, int end, int keys,
                                          int topk) {
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

inline Answer run_topk(const DeviceInputs& inputs, const dosa_options& options) {
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

}  // namespace dosa::testing
