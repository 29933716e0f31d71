// SPDX-License-Identifier: Apache-2.0
// Lists the scores of four keys from C++ and compares the version of header and library.
#include <dosa/dosa.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main() {
  constexpr int kHeadDim = 16;
  constexpr int kKeys = 4;
  const std::array<std::uint8_t, kKeys> first_codes = {0x38, 0x40, 0x30, 0x44};  // 1, 2, 0.5, 3
  std::array<std::uint8_t, kHeadDim> query = {0x38};
  std::vector<std::uint8_t> keys(kKeys * kHeadDim);
  for (std::size_t i = 0; i < kKeys; ++i) keys[i * kHeadDim] = first_codes[i];
  const std::array<float, kKeys> scales = {1, 1, 1, -1};
  const float weight = 2;

  dosa_options options;
  if (dosa_options_init(&options, sizeof options) != DOSA_OK) return 1;
  dosa_problem problem = {};
  problem.struct_size = sizeof problem;
  problem.num_queries = 1;
  problem.num_keys = kKeys;
  problem.num_heads = 1;
  problem.head_dim = kHeadDim;
  problem.topk = 1;
  problem.q = query.data();
  problem.q_stride = kHeadDim;
  problem.k = keys.data();
  problem.k_stride = kHeadDim;
  problem.k_scale = scales.data();
  problem.weights = &weight;
  problem.weights_stride = 1;

  std::size_t bytes = 0;
  if (dosa_workspace_bytes(&problem, &options, &bytes) != DOSA_OK) return 1;
  std::vector<unsigned char> workspace(bytes + 1);
  std::array<float, kKeys> scores = {};
  if (dosa_scores(&problem, &options, 0, 1, scores.data(), kKeys, workspace.data(), bytes) !=
      DOSA_OK) {
    std::fprintf(stderr, "%s\n", dosa_last_error());
    return 1;
  }
  if (scores != std::array<float, kKeys>{2, 4, 1, -6}) return 1;

  const std::string version = std::to_string(DOSA_VERSION_MAJOR) + "." +
                              std::to_string(DOSA_VERSION_MINOR) + "." +
                              std::to_string(DOSA_VERSION_PATCH);
  std::printf("dosa %s on %s\n", dosa_version(), dosa_simd_target());
  return version == dosa_version() ? 0 : 1;
}
