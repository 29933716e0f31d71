// SPDX-License-Identifier: Apache-2.0
// dosa_cuda_merge_topk against dosa_merge_topk of the host, byte for byte: any lists, ties,
// repeats, special scores, both layouts, both orders; and inside a graph.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "device_array.hpp"
#include "dosa/dosa_cuda.h"
#include "gpu/check.hpp"
#include "oracle/random.hpp"
#include "report.hpp"
#include "unit/select/merge_draw.hpp"
#include "unit/select/merge_lists.hpp"

namespace dosa::testing {
namespace {

using oracle::Random;
using test::Candidates;
using test::Lists;

constexpr int64_t kGap = 3;  // between rows of the output; stays as it was

/// The same candidates with their arrays on the device, and room for the answer.
class DeviceMerge {
 public:
  DeviceMerge(const dosa_candidates& host, size_t entries, size_t offsets)
      : scores_(copy(host.scores, entries)),
        ids_(copy(host.ids, entries)),
        offsets_(copy(host.offsets, offsets)),
        stride_(host.topk + kGap),
        indices_(static_cast<size_t>(host.num_rows * stride_)),
        values_(indices_.size()),
        candidates_(host) {
    candidates_.scores = scores_.get();
    candidates_.ids = ids_.get();
    candidates_.offsets = offsets != 0 ? offsets_.get() : nullptr;
  }

  dosa_status run(bool scores, cudaStream_t stream) {
    indices_.poison();
    values_.poison();
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = indices_.get();
    output.indices_stride = stride_;
    output.scores = scores ? values_.get() : nullptr;
    output.scores_stride = stride_;
    return dosa_cuda_merge_topk(&candidates_, &output, stream);
  }

  dosa_candidates& candidates() { return candidates_; }
  [[nodiscard]] std::vector<int32_t> indices() const { return indices_.host(); }
  [[nodiscard]] std::vector<uint32_t> values() const {
    const std::vector<float> values = values_.host();
    std::vector<uint32_t> words(values.size());
    std::memcpy(words.data(), values.data(), values.size() * sizeof(float));
    return words;
  }

 private:
  template <class T>
  static DeviceArray<T> copy(const T* data, size_t count) {
    return DeviceArray<T>(data != nullptr ? std::vector<T>(data, data + count) : std::vector<T>());
  }

  DeviceArray<float> scores_;
  DeviceArray<int32_t> ids_;
  DeviceArray<int64_t> offsets_;
  int64_t stride_;
  DeviceArray<int32_t> indices_;
  DeviceArray<float> values_;
  dosa_candidates candidates_;
};

bool same_score(uint32_t found, float expected) {
  if (std::isnan(expected)) return (found & 0x7fffffffu) > 0x7f800000u;
  uint32_t bits = 0;
  std::memcpy(&bits, &expected, sizeof bits);
  return found == bits;
}

void compare(const std::string& name, DeviceMerge& device, const test::MergeCall& host,
             int64_t rows, int64_t topk, bool scores) {
  const std::vector<int32_t> ids = device.indices();
  const std::vector<uint32_t> values = device.values();
  int wrong = 0;
  std::string first;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < topk + kGap; ++i) {
      const auto at = static_cast<size_t>(row * (topk + kGap) + i);
      const auto expected = static_cast<size_t>(row * topk + i);
      const bool gap = i >= topk;
      const bool right_id =
          ids[at] == (gap ? static_cast<int32_t>(0xa5a5a5a5) : host.answer.ids[expected]);
      const bool right_score = gap || !scores
                                   ? values[at] == 0xa5a5a5a5u
                                   : same_score(values[at], host.answer.scores[expected]);
      if (right_id && right_score) continue;
      if (wrong++ == 0) {
        first = "row " + std::to_string(row) + ", place " + std::to_string(i) + ": id " +
                std::to_string(ids[at]) + ", expected " +
                std::to_string(gap ? 0xa5a5a5a5 : host.answer.ids[expected]);
      }
    }
  }
  expect(wrong == 0, name, std::to_string(wrong) + " places differ; " + first);
}

/// Both layouts and both orders, with and without scores.
void check_lists(const std::string& name, const Lists& lists, size_t rows, int topk) {
  for (int variant = 0; variant < 4; ++variant) {
    const bool packed = (variant & 1) != 0;
    Candidates host(lists, rows, topk, packed, variant == 0 ? 3 : 0);
    host.get().order = (variant & 2) != 0 ? DOSA_ORDER_SCORE : DOSA_ORDER_ID;
    const test::MergeCall expected(host.get());
    const std::string what = name + ", variant " + std::to_string(variant);
    expect(expected.status == DOSA_OK, what, dosa_last_error());
    const dosa_candidates& given = host.get();
    const size_t offsets = packed ? lists.size() * (rows + 1) + 1 : 0;
    size_t entries = 0;
    if (!packed && !lists.empty() && rows > 0) {
      entries = static_cast<size_t>((given.num_lists - 1) * given.list_stride +
                                    (given.num_rows - 1) * given.row_stride + given.width);
    }
    for (size_t i = 0; packed && i + 1 < offsets; ++i) {
      entries = std::max(entries, static_cast<size_t>(given.offsets[i]));
    }
    DeviceMerge device(given, entries, offsets);
    const bool scores = variant != 1;
    const dosa_status status = device.run(scores, nullptr);
    expect(status == DOSA_OK, what, dosa_last_error());
    if (status != DOSA_OK) return;
    DOSA_CUDA(cudaDeviceSynchronize());
    compare(what, device, expected, given.num_rows, topk, scores);
  }
}

void check_random() {
  Random random(21);
  for (int trial = 0; trial < 60; ++trial) {
    const auto count = static_cast<size_t>(random.below(9));
    const auto rows = static_cast<size_t>(random.between(1, 4));
    const int longest = static_cast<int>(random.between(1, 60));
    const int topk = static_cast<int>(random.between(1, 80));
    check_lists("random " + std::to_string(trial),
                test::draw_lists(random, count, rows, longest, random.once_in(3)), rows, topk);
  }
}

/// More entries than the buffer holds, in lists of any length, distinct or repeated.
void check_long() {
  Random random(22);
  for (const int topk : {1, 7, 500, 2048, 4096}) {
    for (const bool repeats : {false, true}) {
      const std::string name = "long, K " + std::to_string(topk) + (repeats ? ", repeats" : "");
      check_lists(name, test::draw_lists(random, 5, 3, 6000, repeats), 3, topk);
      check_lists(name + ", 64 lists", test::draw_lists(random, 64, 2, 1500, repeats), 2, topk);
    }
  }
  check_lists("256 lists", test::draw_lists(random, 256, 2, 90, false), 2, 2048);
}

/// Plateaus that the cutoff cuts, spread over the lists; the best last, so that every reduction is
/// followed by better entries; copies of one list.
void check_ties() {
  for (const size_t count : {1u, 2u, 8u, 64u}) {
    Lists lists(count, std::vector<std::vector<test::Entry>>(2));
    Lists rising = lists;
    for (int32_t id = 0; id < 24000; ++id) {
      const size_t list = static_cast<size_t>(id * 7) % count;
      lists[list][0].push_back({id % 12 == 0 ? 2.0f : 1.0f, id});
      lists[list][1].push_back({1.0f, 24000 - id});
      rising[list][0].push_back({static_cast<float>(id), id});
      rising[list][1].push_back({static_cast<float>(id / 3), 2000000000 + id});
    }
    const std::string name = std::to_string(count) + " lists";
    for (const int topk : {1, 2000, 2048, 3000, 4096}) check_lists("ties, " + name, lists, 2, topk);
    check_lists("rising, " + name, rising, 2, 2048);
  }
  Lists same(3, std::vector<std::vector<test::Entry>>(1));
  for (auto& list : same) {
    for (int32_t id = 0; id < 9000; ++id) list[0].push_back({static_cast<float>(id % 97), id});
  }
  check_lists("three copies", same, 1, 700);
  check_lists("three copies", same, 1, 4096);
}

void check_nothing() {
  check_lists("no lists", {}, 3, 5);
  check_lists("empty lists", Lists(4, std::vector<std::vector<test::Entry>>(2)), 2, 5);
  check_lists("no rows", Lists(4), 0, 5);
  Lists one_sided(8, std::vector<std::vector<test::Entry>>(2));
  for (int32_t id = 0; id < 5000; ++id) one_sided[5][1].push_back({1.0f / (1 + id), id});
  check_lists("one list holds all", one_sided, 2, 2048);
}

/// A captured merge, replayed with other entries.
void check_graph() {
  Random random(23);
  cudaStream_t stream = nullptr;
  DOSA_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr int kTopk = 300;
  constexpr size_t kRows = 40;
  Lists lists(4, std::vector<std::vector<test::Entry>>(kRows));
  const auto draw = [&] {
    for (size_t l = 0; l < 4; ++l) {
      for (size_t row = 0; row < kRows; ++row) {
        lists[l][row].clear();
        for (int32_t n = 0; n < kTopk; ++n) {
          lists[l][row].push_back(
              {static_cast<float>(random.uniform()), n * 4 + static_cast<int32_t>(l)});
        }
      }
    }
  };
  draw();
  Candidates first(lists, kRows, kTopk, false);
  const size_t entries = 4 * kRows * kTopk;
  DeviceMerge device(first.get(), entries, 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  dosa_output output{};
  DOSA_CUDA(cudaStreamSynchronize(stream));
  DeviceArray<int32_t> ids(kRows * kTopk);
  output.struct_size = sizeof output;
  output.indices = ids.get();
  output.indices_stride = kTopk;
  DOSA_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const dosa_status status = dosa_cuda_merge_topk(&device.candidates(), &output, stream);
  DOSA_CUDA(cudaStreamEndCapture(stream, &graph));
  expect(status == DOSA_OK, "capture", dosa_last_error());
  DOSA_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  for (int replay = 0; replay < 3; ++replay) {
    draw();
    Candidates host(lists, kRows, kTopk, false);
    const dosa_candidates& to = device.candidates();
    DOSA_CUDA(cudaMemcpy(const_cast<float*>(to.scores), host.get().scores, entries * sizeof(float),
                         cudaMemcpyHostToDevice));
    DOSA_CUDA(cudaMemcpy(const_cast<int32_t*>(to.ids), host.get().ids, entries * sizeof(int32_t),
                         cudaMemcpyHostToDevice));
    ids.poison();
    DOSA_CUDA(cudaDeviceSynchronize());
    DOSA_CUDA(cudaGraphLaunch(ready, stream));
    DOSA_CUDA(cudaStreamSynchronize(stream));
    const test::MergeCall expected(host.get());
    expect(ids.host() == expected.answer.ids, "replay", "other ids than on the host");
  }
  DOSA_CUDA(cudaGraphExecDestroy(ready));
  DOSA_CUDA(cudaGraphDestroy(graph));
  DOSA_CUDA(cudaStreamDestroy(stream));
}

/// Refused before anything is enqueued, by the name of what is wrong.
void check_refused() {
  const Lists lists(2, std::vector<std::vector<test::Entry>>(2, {{1.0f, 1}, {2.0f, 2}}));
  Candidates host(lists, 2, 2, false);
  DeviceMerge device(host.get(), 8, 0);
  const auto refused = [&](const char* name, auto change) {
    const dosa_candidates before = device.candidates();
    change(device.candidates());
    const dosa_status status = device.run(true, nullptr);
    expect(status == DOSA_INVALID_ARGUMENT && std::strstr(dosa_last_error(), name) != nullptr, name,
           dosa_last_error());
    DOSA_CUDA(cudaDeviceSynchronize());
    expect(device.indices()[0] == static_cast<int32_t>(0xa5a5a5a5), name, "something was written");
    device.candidates() = before;
  };
  refused("candidates.topk: found 4097", [](dosa_candidates& c) { c.topk = 4097; });
  refused("candidates.topk: found 0", [](dosa_candidates& c) { c.topk = 0; });
  refused("candidates.num_lists: found 257", [](dosa_candidates& c) { c.num_lists = 257; });
  refused("candidates.scores: found null", [](dosa_candidates& c) { c.scores = nullptr; });
  refused("candidates.ids: found null", [](dosa_candidates& c) { c.ids = nullptr; });
  refused("candidates.row_stride: found 1", [](dosa_candidates& c) { c.row_stride = 1; });
  refused("candidates.struct_size", [](dosa_candidates& c) { c.struct_size = 8; });
  refused("output.indices_stride: found 5", [](dosa_candidates& c) { c.topk = 6; });
  expect(dosa_cuda_merge_topk(nullptr, nullptr, nullptr) == DOSA_INVALID_ARGUMENT, "null",
         "expected a refusal");
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  int devices = 0;
  const bool device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  return run_parts({{"random", check_random},
                    {"long", check_long},
                    {"ties", check_ties},
                    {"nothing", check_nothing},
                    {"graph", check_graph},
                    {"refused", check_refused}},
                   argc, argv, device);
}
