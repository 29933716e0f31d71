// SPDX-License-Identifier: Apache-2.0
// Decoding: keys arrive one by one in a paged cache, and every step selects the best of them, with
// witnesses that carry over what the step before selected.
//
//   c++ -std=c++20 04_decode.cpp $(pkg-config --cflags --libs dosa) && ./a.out
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "dosa/dosa.hpp"

namespace {

constexpr int kHeads = 32;
constexpr int kDim = 128;
constexpr int kTopk = 512;
constexpr int kPageSize = 64;
constexpr int kPages = 200;
constexpr int kPrompt = 12000;  // tokens before the first step
constexpr int kSteps = 8;

std::uint16_t to_bf16(float x) {  // truncated: good enough for made-up keys
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}

/// Writes the keys [begin, end) of a made-up text to the pages that `table` names.
void insert(const dosa_page_cache& cache, const std::vector<std::int32_t>& table, int begin,
            int end, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> keys;
  std::vector<std::int64_t> slots;
  for (int p = begin; p < end; ++p) {
    for (int d = 0; d < kDim; ++d) keys.push_back(to_bf16(normal(random)));
    const std::int64_t page = table[static_cast<std::size_t>(p / kPageSize)];
    slots.push_back(page * kPageSize + p % kPageSize);
  }
  dosa_paged_insert_problem insertion{};
  insertion.struct_size = sizeof insertion;
  insertion.cache = &cache;
  insertion.num_tokens = end - begin;
  insertion.k = keys.data();
  insertion.k_stride = kDim;
  insertion.slot_mapping = slots.data();
  insertion.scale_format = DOSA_SCALE_UE8M0;
  dosa::check(dosa_paged_insert(&insertion));
}

void decode() {
  std::mt19937 random(1);
  std::vector<std::uint8_t> pages(std::size_t{kPages} * kPageSize * (kDim + 4));
  const dosa_page_cache cache = dosa::make_page_cache(pages.data(), kPages, kPageSize, kDim);
  std::vector<std::int32_t> table(kPages);  // the pages of our only request, in any order
  for (int n = 0; n < kPages; ++n) table[static_cast<std::size_t>(n)] = kPages - 1 - n;
  insert(cache, table, 0, kPrompt, random);

  // Codes of e4m3 without the two of NaN; most weights negative, as in trained models.
  std::vector<std::uint8_t> q(std::size_t{kHeads} * kDim);
  for (auto& code : q) code = static_cast<std::uint8_t>(random() % 2 * 128 + random() % 127);
  std::vector<float> weights(kHeads);
  for (float& weight : weights) weight = static_cast<float>(random() % 1000) / 1000.0F - 0.8F;

  std::int32_t length = kPrompt;
  dosa_paged_problem problem = dosa::make_paged_problem(cache, 1, 1, kHeads, kTopk);
  problem.max_context = std::int64_t{kPages} * kPageSize;
  problem.q = q.data();
  problem.weights = weights.data();
  problem.context_lens = &length;
  problem.block_table = table.data();
  problem.block_table_stride = problem.block_table_blocks = kPages;
  dosa::Witnesses witnesses(kTopk, 1);
  witnesses.attach(problem);

  dosa_options options = dosa::default_options();
  options.index_form = DOSA_INDEX_SLOT;  // what sparse attention reads
  dosa::Indexer indexer(options);
  for (int step = 0; step < kSteps; ++step) {
    insert(cache, table, length, length + 1, random);
    ++length;
    const dosa::TopK best = indexer.topk(problem);
    std::printf("step %d: %d tokens, first slot %d, %lld scores kept, threshold %g, then %g\n",
                step, length, best.indices[0], static_cast<long long>(best.stats.records),
                static_cast<double>(best.rows[0].first_threshold),
                static_cast<double>(best.rows[0].kth_score));
    // The next query resembles this one: a few coordinates change.
    for (int n = 0; n < 40; ++n) q[random() % q.size()] = static_cast<std::uint8_t>(random() % 127);
  }
}

}  // namespace

int main() {
  try {
    decode();
  } catch (const dosa::Error& error) {
    std::fprintf(stderr, "dosa: %s\n", error.what());
    return 1;
  }
  return 0;
}
