// SPDX-License-Identifier: Apache-2.0
// Decode steps for tests of the device engine: keys in shuffled pages, and what the answer must be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gpu/inputs.hpp"
#include "numeric/order_sm90.cuh"

namespace dosa::testing {

/// What a step looks like. `tokens` are the keys that each request has; lengths may be any.
struct PagedSpec {
  int batch = 3;
  int next_n = 1;
  int heads = 32;
  int topk = 64;
  int page_size = 64;
  int page_gap = 0;  // bytes between pages
  int tokens = 3000;
  int lengths = DOSA_LENGTHS_PER_QUERY;
  int index_form = DOSA_INDEX_ABSOLUTE;
  int order = DOSA_ORDER_ID;
  int forced_first = 0;
  int forced_last = 0;
  bool scores = true;
  bool own_slots = true;
};

/// Host copies of all that a step reads, and the same on the device.
class PagedCase {
 public:
  PagedCase(const PagedSpec& spec, HostInputs keys, unsigned seed)
      : spec(spec), host(std::move(keys)), random_(seed) {
    blocks_ = (spec.tokens + spec.page_size - 1) / spec.page_size + 1;
    stride_ = spec.page_size * (kDim + 4) + spec.page_gap;
    table.resize(static_cast<size_t>(spec.batch) * blocks_);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    pages.assign(table.size() * stride_, 0xff);
    for (int b = 0; b < spec.batch; ++b) {
      for (int i = 0; i < spec.tokens; ++i) put(b, i);
    }
    slots.resize(table.size());
    for (int32_t& slot : slots) slot = static_cast<int32_t>(random_() % 100000);
    offsets.resize(rows());
    for (int32_t& offset : offsets) offset = static_cast<int32_t>(random_() % 1000000);
    set_lengths();
  }

  [[nodiscard]] int rows() const { return spec.batch * spec.next_n; }

  /// Lengths of every kind, most of them long.
  void set_lengths() {
    const bool per_request = spec.lengths == DOSA_LENGTHS_PER_REQUEST;
    lengths.resize(per_request ? spec.batch : rows());
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int kind = static_cast<int>(random_() % 12);
      int length = spec.tokens - static_cast<int>(random_() % (spec.tokens / 4 + 1));
      if (kind == 0) length = -static_cast<int>(random_() % 5);
      if (kind == 1) length = static_cast<int>(random_() % (spec.topk + 1));
      if (kind == 2) length = spec.tokens;
      if (kind == 3) length = static_cast<int>(random_() % (spec.tokens + 1));
      lengths[i] = length;
    }
    lengths[0] = spec.tokens;
  }

  [[nodiscard]] int length(int row) const {
    const int b = row / spec.next_n;
    const int t = row % spec.next_n;
    const int stated = spec.lengths == DOSA_LENGTHS_PER_REQUEST ? lengths[b] - (spec.next_n - 1 - t)
                                                                : lengths[row];
    return std::clamp(stated, 0, spec.tokens);
  }

  [[nodiscard]] int64_t page_stride() const { return stride_; }
  [[nodiscard]] int blocks() const { return blocks_; }

  [[nodiscard]] int32_t map(int row, int token) const {
    const int b = row / spec.next_n;
    if (spec.index_form == DOSA_INDEX_OFFSET) return token + offsets[row];
    if (spec.index_form != DOSA_INDEX_SLOT) return token;
    const auto& from = spec.own_slots ? table : slots;
    return from[static_cast<size_t>(b) * blocks_ + token / spec.page_size] * spec.page_size +
           token % spec.page_size;
  }

  PagedSpec spec;
  HostInputs host;  // keys (batch * tokens), queries (rows)
  std::vector<uint8_t> pages;
  std::vector<int32_t> table, slots, offsets, lengths;

 private:
  void put(int b, int i) {
    uint8_t* const page =
        pages.data() +
        static_cast<size_t>(table[static_cast<size_t>(b) * blocks_ + i / spec.page_size]) * stride_;
    const size_t key = static_cast<size_t>(b) * spec.tokens + i;
    const int place = i % spec.page_size;
    std::memcpy(page + place * kDim, host.k.data() + key * kDim, kDim);
    std::memcpy(page + spec.page_size * kDim + place * 4, host.k_scale.data() + key, 4);
  }

  std::mt19937 random_;
  int blocks_ = 0;
  size_t stride_ = 0;
};

/// An answer: ids and score bits of every row.
struct PagedAnswer {
  std::vector<int32_t> ids;
  std::vector<uint32_t> scores;
  bool operator==(const PagedAnswer& other) const {
    return ids == other.ids && scores == other.scores;
  }
};

/// Every key scored by the prefill engine on contiguous keys, ranked on the host.
inline PagedAnswer expected_answer(const PagedCase& paged) {
  const PagedSpec& spec = paged.spec;
  PagedAnswer answer;
  answer.ids.assign(static_cast<size_t>(paged.rows()) * spec.topk, -1);
  answer.scores.assign(answer.ids.size(), 0x7fffffff);
  const DeviceArray<uint8_t> q(paged.host.q);
  const DeviceArray<uint8_t> k(paged.host.k);
  const DeviceArray<float> k_scale(paged.host.k_scale);
  const DeviceArray<float> weights(paged.host.weights);
  const DeviceArray<float> scores(static_cast<size_t>(spec.next_n) * spec.tokens);
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = spec.next_n;
  problem.num_keys = spec.tokens;
  problem.num_heads = spec.heads;
  problem.head_dim = kDim;
  problem.topk = spec.topk;
  problem.page_size = 64;
  problem.q_stride = static_cast<int64_t>(spec.heads) * kDim;
  problem.k_stride = kDim;
  problem.weights_stride = spec.heads;
  options.mode = DOSA_MODE_FULL;
  size_t bytes = 0;
  dosa_cuda_workspace_bytes(&problem, &options, &bytes);
  const DeviceArray<uint8_t> workspace(bytes);
  for (int b = 0; b < spec.batch; ++b) {
    const size_t row = static_cast<size_t>(b) * spec.next_n;
    const size_t key = static_cast<size_t>(b) * spec.tokens;
    problem.q = q.get() + row * spec.heads * kDim;
    problem.weights = weights.get() + row * spec.heads;
    problem.k = k.get() + key * kDim;
    problem.k_scale = k_scale.get() + key;
    if (dosa_cuda_scores(&problem, &options, 0, spec.next_n, scores.get(), spec.tokens,
                         workspace.get(), bytes, nullptr) != DOSA_OK) {
      throw std::runtime_error(dosa_last_error());
    }
    const std::vector<float> all = scores.host();
    for (int t = 0; t < spec.next_n; ++t) {
      const int own = static_cast<int>(row) + t;
      const int length = paged.length(own);
      std::vector<uint64_t> records(length);
      for (int i = 0; i < length; ++i) {
        const bool forced = i < spec.forced_first || i >= length - spec.forced_last;
        const float score = forced ? std::numeric_limits<float>::infinity()
                                   : all[static_cast<size_t>(t) * spec.tokens + i];
        records[i] = numeric::make_record(score, i);
      }
      std::sort(records.begin(), records.end(), std::greater<>());
      records.resize(std::min(length, spec.topk));
      if (spec.order == DOSA_ORDER_ID) {
        std::sort(records.begin(), records.end(), [](uint64_t a, uint64_t b) {
          return numeric::record_key(a) < numeric::record_key(b);
        });
      }
      for (size_t i = 0; i < records.size(); ++i) {
        const size_t at = static_cast<size_t>(own) * spec.topk + i;
        answer.ids[at] = paged.map(own, numeric::record_key(records[i]));
        const float score = numeric::record_score(records[i]);
        std::memcpy(&answer.scores[at], &score, 4);
      }
    }
  }
  if (!spec.scores) answer.scores.clear();
  return answer;
}

/// The step on the device, with a witness state for each request.
struct PagedDevice {
  DeviceArray<uint8_t> q, pages;
  DeviceArray<float> weights;
  DeviceArray<int32_t> lengths, table, slots, offsets;
  DeviceArray<uint32_t> states;
  DeviceArray<int32_t> ids;
  DeviceArray<uint32_t> scores;
  dosa_page_cache cache{};
  dosa_paged_problem problem{};
  dosa_options options{};
  dosa_output output{};
  size_t bytes = 0;
  DeviceArray<uint8_t> workspace;

  explicit PagedDevice(const PagedCase& paged)
      : q(paged.host.q),
        pages(paged.pages),
        weights(paged.host.weights),
        lengths(paged.lengths),
        table(paged.table),
        slots(paged.slots),
        offsets(paged.offsets),
        states(std::vector<uint32_t>(static_cast<size_t>(paged.spec.batch) *
                                     state_words(paged.spec.topk))),
        ids(static_cast<size_t>(paged.rows()) * paged.spec.topk),
        scores(ids.size()),
        workspace(measure(paged)) {
    workspace.poison();
  }

  static size_t state_words(int topk) {
    size_t state_bytes = 0;
    dosa_witness_bytes(topk, &state_bytes);
    return state_bytes / 4;
  }

  /// Fills the structures; returns the bytes of the workspace.
  size_t measure(const PagedCase& paged) {
    const PagedSpec& spec = paged.spec;
    cache.struct_size = sizeof cache;
    cache.pages = pages.get();
    cache.page_stride = paged.page_stride();
    cache.num_pages = static_cast<int64_t>(paged.table.size());
    cache.page_size = spec.page_size;
    cache.head_dim = kDim;
    problem.struct_size = sizeof problem;
    problem.cache = &cache;
    problem.batch = spec.batch;
    problem.max_context = spec.tokens;
    problem.next_n = spec.next_n;
    problem.num_heads = spec.heads;
    problem.topk = spec.topk;
    problem.lengths = spec.lengths;
    problem.q = q.get();
    problem.q_stride = static_cast<int64_t>(spec.heads) * kDim;
    problem.weights = weights.get();
    problem.weights_stride = spec.heads;
    problem.context_lens = lengths.get();
    problem.context_lens_stride = spec.lengths == DOSA_LENGTHS_PER_REQUEST ? 1 : spec.next_n;
    problem.block_table = table.get();
    problem.block_table_stride = problem.block_table_blocks = paged.blocks();
    problem.index_offset = offsets.get();
    problem.slot_table = spec.own_slots ? nullptr : slots.get();
    problem.slot_table_stride = problem.slot_table_pages = paged.blocks();
    problem.slot_page_size = spec.page_size;
    problem.witnesses = states.get();
    problem.witness_stride = static_cast<int64_t>(4 * state_words(spec.topk));
    problem.witness_count = spec.batch;
    dosa_cuda_options_init(&options, sizeof options);
    options.index_form = spec.index_form;
    options.order = spec.order;
    options.forced_first = spec.forced_first;
    options.forced_last = spec.forced_last;
    output.struct_size = sizeof output;
    output.indices = ids.get();
    output.indices_stride = spec.topk;
    output.scores = spec.scores ? reinterpret_cast<float*>(scores.get()) : nullptr;
    output.scores_stride = spec.topk;
    if (dosa_cuda_paged_workspace_bytes(&problem, &options, &bytes) != DOSA_OK) {
      throw std::runtime_error(dosa_last_error());
    }
    return bytes;
  }

  void enqueue(cudaStream_t stream) const {
    if (dosa_cuda_paged_topk(&problem, &options, &output, workspace.get(), bytes, stream) !=
        DOSA_OK) {
      throw std::runtime_error(dosa_last_error());
    }
  }

  [[nodiscard]] PagedAnswer run() const {
    ids.poison();
    scores.poison();
    enqueue(nullptr);
    DOSA_CUDA(cudaDeviceSynchronize());
    return read();
  }

  [[nodiscard]] PagedAnswer read() const {
    PagedAnswer answer{ids.host(), {}};
    if (output.scores != nullptr) answer.scores = scores.host();
    return answer;
  }
};

}  // namespace dosa::testing
