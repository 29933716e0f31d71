// SPDX-License-Identifier: Apache-2.0
// Replays the newest query rows of a trace as decode steps of one growing sequence, from an empty
// state, and compares every step with all keys scored, stored and selected.
//
// decode_verify --files PREFIX --rows R --keys N --heads H [--steps S] [--topk K] [--json FILE]
//
// Step s asks row R - S + s over the first N - S + s + 1 keys: causal, as text was written.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "decode_sequence.cuh"
#include "dosa/dosa_cuda.h"
#include "select/select_sm90.cuh"

namespace dosa::bench {
namespace {

struct Arguments {
  std::string files, json;
  int64_t rows = 64;
  int64_t keys = 131072;
  int64_t steps = 64;
  int heads = 32;
  int topk = 2048;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--files") arguments.files = value;
    if (name == "--json") arguments.json = value;
    if (name == "--rows") arguments.rows = std::atoll(value);
    if (name == "--keys") arguments.keys = std::atoll(value);
    if (name == "--steps") arguments.steps = std::atoll(value);
    if (name == "--heads") arguments.heads = std::atoi(value);
    if (name == "--topk") arguments.topk = std::atoi(value);
  }
  return arguments;
}

void require(dosa_status status) {
  if (status != DOSA_OK) throw std::runtime_error(dosa_last_error());
}

/// Counts the places in which two rows differ, and the winners that a row shares with the last one.
__global__ void compare(const int32_t* found, const int32_t* wanted, const int32_t* before,
                        int topk, unsigned long long* counts) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= topk) return;
  if (found[i] != wanted[i]) atomicAdd(counts, 1ull);
  if (before == nullptr) return;
  int low = 0;
  int high = topk;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (before[middle] <= wanted[i] ? low : high) = middle;
  }
  if (before[low] == wanted[i]) atomicAdd(counts + 1, 1ull);
}

class Replay {
 public:
  explicit Replay(const Arguments& arguments)
      : arguments_(arguments),
        sequence_(make_sequence(arguments.keys, arguments.heads, arguments.rows, 6, 0.9f,
                                arguments.files)),
        pages_(make_pages(sequence_, 1)) {
    if (arguments.steps > arguments.rows || arguments.steps >= arguments.keys - arguments.topk) {
      throw std::runtime_error("--steps: found more than there are rows, or keys beyond K");
    }
    if (arguments.keys % 4 != 0) {
      throw std::runtime_error(
          "--keys: found no multiple of 4, expected one: scores are selected in fours");
    }
    cache_.struct_size = sizeof cache_;
    cache_.pages = pages_.pages;
    cache_.page_stride = 64 * (128 + 4);
    cache_.num_pages = pages_.count;
    cache_.page_size = 64;
    cache_.head_dim = 128;
    std::vector<int32_t> lengths(static_cast<size_t>(arguments.steps));
    std::vector<int2> windows(lengths.size());
    for (size_t step = 0; step < lengths.size(); ++step) {
      lengths[step] =
          static_cast<int32_t>(arguments.keys - arguments.steps) + static_cast<int32_t>(step) + 1;
      windows[step] = make_int2(0, lengths[step]);
    }
    lengths_ = device_copy(lengths);
    windows_ = device_copy(windows);
    require(dosa_witness_bytes(arguments.topk, &state_bytes_));
    state_ = device_copy(std::vector<uint32_t>(state_bytes_ / 4));
    scores_ = device_array<float>(arguments.keys);
    found_ = device_array<int32_t>(arguments.topk);
    wanted_ = device_array<int32_t>(2 * int64_t{arguments.topk});
    counts_ = device_copy(std::vector<unsigned long long>(2));
  }

  /// Returns whether every step agreed.
  bool run() {
    for (int64_t step = 0; step < arguments_.steps; ++step) visit(step);
    unsigned long long counts[2] = {};
    DOSA_CUDA(cudaMemcpy(counts, counts_, sizeof counts, cudaMemcpyDeviceToHost));
    const double shared = static_cast<double>(counts[1]) /
                          static_cast<double>((arguments_.steps - 1) * arguments_.topk);
    std::printf(
        "%lld steps, N %lld, H %d, K %d: %llu ids differ; shared with the step before: %.3f\n",
        static_cast<long long>(arguments_.steps), static_cast<long long>(arguments_.keys),
        arguments_.heads, arguments_.topk, counts[0], shared);
    if (!arguments_.json.empty()) write_json(counts[0], shared);
    return counts[0] == 0;
  }

 private:
  void visit(int64_t step) {
    const int64_t row = arguments_.rows - arguments_.steps + step;
    dosa_paged_problem problem{};
    problem.struct_size = sizeof problem;
    problem.cache = &cache_;
    problem.batch = 1;
    problem.max_context = arguments_.keys;
    problem.next_n = 1;
    problem.num_heads = arguments_.heads;
    problem.topk = arguments_.topk;
    problem.q = sequence_.q + row * arguments_.heads * 128;
    problem.q_stride = int64_t{arguments_.heads} * 128;
    problem.weights = sequence_.weights + row * arguments_.heads;
    problem.weights_stride = arguments_.heads;
    problem.context_lens = lengths_ + step;
    problem.context_lens_stride = 1;
    problem.block_table = pages_.table;
    problem.block_table_stride = problem.block_table_blocks = pages_.blocks;
    problem.witnesses = state_;
    problem.witness_count = 1;
    problem.witness_stride = static_cast<int64_t>(state_bytes_);
    dosa_options options;
    require(dosa_cuda_options_init(&options, sizeof options));
    size_t bytes = 0;
    require(dosa_cuda_paged_workspace_bytes(&problem, &options, &bytes));
    if (workspace_ == nullptr) workspace_ = device_array<uint8_t>(static_cast<int64_t>(bytes));
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = found_;
    output.indices_stride = arguments_.topk;
    require(dosa_cuda_paged_scores(&problem, scores_, arguments_.keys, nullptr));
    numeric::RowState rows{};
    rows.windows = windows_ + step;
    rows.visible = windows_ + step;
    rows.rows = 1;
    select::OutputForm form{};
    form.indices = wanted_ + step % 2 * arguments_.topk;
    form.indices_stride = arguments_.topk;
    form.topk = arguments_.topk;
    DOSA_CUDA(select::launch_select_scores_sm90(rows, scores_, arguments_.keys, arguments_.keys,
                                                form, nullptr));
    constexpr int kThreads = 256;
    // The way that the shape suggests, then by records above a threshold, with the state of the
    // first.
    const int32_t* before = step > 0 ? wanted_ + (step + 1) % 2 * arguments_.topk : nullptr;
    for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_FULL}) {
      options.mode = mode;
      DOSA_CUDA(cudaMemsetAsync(found_, 0xa5, static_cast<size_t>(arguments_.topk) * 4));
      require(dosa_cuda_paged_topk(&problem, &options, &output, workspace_, bytes, nullptr));
      compare<<<static_cast<unsigned>((arguments_.topk + kThreads - 1) / kThreads), kThreads>>>(
          found_, form.indices, before, arguments_.topk, counts_);
      DOSA_CUDA(cudaGetLastError());
      before = nullptr;
    }
  }

  void write_json(unsigned long long different, double shared) const {
    std::FILE* const file = std::fopen(arguments_.json.c_str(), "w");
    if (file == nullptr) throw std::runtime_error(arguments_.json + ": cannot be written");
    std::fprintf(
        file,
        "{\"files\": \"%s\", \"keys\": %lld, \"heads\": %d, \"topk\": %d, \"steps\": %lld, "
        "\"ids_different\": %llu, \"shared\": %.4f}\n",
        arguments_.files.c_str(), static_cast<long long>(arguments_.keys), arguments_.heads,
        arguments_.topk, static_cast<long long>(arguments_.steps), different, shared);
    std::fclose(file);
  }

  const Arguments& arguments_;
  Sequence sequence_;
  Pages pages_;
  dosa_page_cache cache_{};
  int32_t* lengths_ = nullptr;
  int2* windows_ = nullptr;
  uint32_t* state_ = nullptr;
  size_t state_bytes_ = 0;
  float* scores_ = nullptr;
  int32_t* found_ = nullptr;
  int32_t* wanted_ = nullptr;  // of this step and of the one before
  unsigned long long* counts_ = nullptr;
  uint8_t* workspace_ = nullptr;
};

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  try {
    const dosa::bench::Arguments arguments = dosa::bench::parse(argc, argv);
    return dosa::bench::Replay(arguments).run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_verify: %s\n", error.what());
    return 1;
  }
}
