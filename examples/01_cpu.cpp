// SPDX-License-Identifier: Apache-2.0
// The exact Top-K of random queries over random keys, through the C++ interface.
//
//   c++ -std=c++20 01_cpu.cpp $(pkg-config --cflags --libs dosa) && ./a.out
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "dosa/dosa.hpp"

int main() {
  constexpr int kQueries = 8;
  constexpr int kKeys = 20000;
  constexpr int kHeads = 32;
  constexpr int kDim = 128;
  constexpr int kTopk = 2048;

  // Codes of e4m3 without the two of NaN (0x7F, 0xFF); most weights negative, as in trained models.
  std::mt19937 random(1);
  const auto codes = [&](std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::uint8_t& byte : bytes)
      byte = static_cast<std::uint8_t>(random() % 2 * 128 + random() % 127);
    return bytes;
  };
  const std::vector<std::uint8_t> q = codes(std::size_t{kQueries} * kHeads * kDim);
  const std::vector<std::uint8_t> k = codes(std::size_t{kKeys} * kDim);
  const std::vector<float> k_scale(kKeys, 0x1p-10F);
  std::vector<float> weights(std::size_t{kQueries} * kHeads);
  for (float& weight : weights) weight = static_cast<float>(random() % 1000) / 1000.0F - 0.8F;

  dosa_problem problem = dosa::make_problem(kQueries, kKeys, kHeads, kDim, kTopk);
  problem.q = q.data();
  problem.k = k.data();
  problem.k_scale = k_scale.data();
  problem.weights = weights.data();
  std::vector<std::int32_t> visible_to(kQueries);  // row t sees the keys before its own position
  for (int t = 0; t < kQueries; ++t) visible_to[t] = kKeys - kQueries + t + 1;
  problem.k_end = visible_to.data();

  try {
    dosa_options options = dosa::default_options();
    options.order = DOSA_ORDER_SCORE;
    dosa::Indexer indexer(options);
    const dosa::TopK best = indexer.topk(problem, true);
    for (int t = 0; t < kQueries; ++t) {
      const std::size_t row = std::size_t{kTopk} * static_cast<std::size_t>(t);
      std::printf("row %d: best key %5d, score %.6g; key number %d: %5d, score %.6g\n", t,
                  best.indices[row], static_cast<double>(best.scores[row]), kTopk,
                  best.indices[row + kTopk - 1], static_cast<double>(best.scores[row + kTopk - 1]));
    }
    std::printf("%lld keys seen, %lld fully scored, %.3f ms\n",
                static_cast<long long>(best.stats.visible),
                static_cast<long long>(best.stats.fully_scored), 1e3 * best.stats.seconds);
  } catch (const dosa::Error& error) {
    std::fprintf(stderr, "dosa: %s\n", error.what());
    return 1;
  }
  return 0;
}
