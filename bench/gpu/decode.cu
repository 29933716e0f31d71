// SPDX-License-Identifier: Apache-2.0
// Times decode steps inside CUDA graphs: with witnesses of the sequence itself, with useless ones,
// with none, and against a peer that stores every score and selects, given as a shared library.
//
// decode --batch B --keys N --heads H [--topk K] [--repeats R] [--latency STEPS] [--rest COSINE]
//        [--positive P] [--files PREFIX --rows R] [--peer LIBRARY] [--json FILE]
//
// A step goes through several layers, each with a cache and states of its own, so that together
// they exceed the L2 cache; times are per layer. The peer's library exports the three functions of
// struct Peer.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decode_sequence.cuh"
#include "dosa/dosa_cuda.h"

namespace dosa::bench {
namespace {

struct Arguments {
  int batch = 1;
  int64_t keys = 131072;
  int heads = 32;
  int topk = 2048;
  int repeats = 15;
  int latency = 0;
  int positive = 6;
  int64_t rows = 64;
  float rest = 0.9f;
  std::string files, peer, json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--batch") arguments.batch = std::atoi(value);
    if (name == "--keys") arguments.keys = std::atoll(value);
    if (name == "--heads") arguments.heads = std::atoi(value);
    if (name == "--topk") arguments.topk = std::atoi(value);
    if (name == "--repeats") arguments.repeats = std::atoi(value);
    if (name == "--latency") arguments.latency = std::atoi(value);
    if (name == "--positive") arguments.positive = std::atoi(value);
    if (name == "--rows") arguments.rows = std::atoll(value);
    if (name == "--rest") arguments.rest = std::strtof(value, nullptr);
    if (name == "--files") arguments.files = value;
    if (name == "--peer") arguments.peer = value;
    if (name == "--json") arguments.json = value;
  }
  return arguments;
}

/// Dense paged scores and their selection by somebody else; a function returns 0 for success.
struct Peer {
  int (*schedule)(const int32_t* lengths, int batch, int32_t* schedule, void* stream) = nullptr;
  int (*scores)(const uint8_t* q, const uint8_t* pages, int64_t num_pages, const float* weights,
                const int32_t* lengths, const int32_t* table, int64_t blocks,
                const int32_t* schedule, int batch, int heads, float* scores, int64_t stride,
                void* stream) = nullptr;
  int (*select)(float* scores, int64_t stride, int32_t* lengths, int rows, int topk, int32_t* ids,
                void* stream) = nullptr;

  explicit Peer(const std::string& path) {
    if (path.empty()) return;
    void* const library = dlopen(path.c_str(), RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    schedule = reinterpret_cast<decltype(schedule)>(dlsym(library, "peer_schedule"));
    scores = reinterpret_cast<decltype(scores)>(dlsym(library, "peer_scores"));
    select = reinterpret_cast<decltype(select)>(dlsym(library, "peer_select"));
    if (schedule == nullptr || scores == nullptr || select == nullptr) {
      throw std::runtime_error(path + ": lacks a function of struct Peer");
    }
  }
};

void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

void require(dosa_status status) {
  if (status != DOSA_OK) throw std::runtime_error(dosa_last_error());
}

enum class Memory { kOwn, kUseless, kNone };

/// Rows that a graph visits, there and back, so that each is close to the one before.
constexpr int kTurn = 8;
constexpr int kSteps = 2 * kTurn - 2;

int row_of(int step) { return step < kTurn ? step : kSteps - step; }

class Measurement {
 public:
  explicit Measurement(const Arguments& arguments)
      : arguments_(arguments),
        sequence_(make_sequence(arguments.keys, arguments.heads, arguments.rows, arguments.positive,
                                arguments.rest, arguments.files)),
        peer_(arguments.peer) {
    constexpr int64_t kBeyondL2 = 256 << 20;
    const int64_t bytes = arguments.keys * 132 * arguments.batch;
    layers_ = static_cast<int>(std::max<int64_t>(1, (kBeyondL2 + bytes - 1) / bytes));
    pages_ = make_pages(sequence_, int64_t{layers_} * arguments.batch);
    cache_.struct_size = sizeof cache_;
    cache_.pages = pages_.pages;
    cache_.page_stride = 64 * (128 + 4);
    cache_.num_pages = pages_.count;
    cache_.page_size = 64;
    cache_.head_dim = 128;
    gather_queries();
    make_states();
    lengths_ =
        device_copy(std::vector<int32_t>(arguments.batch, static_cast<int32_t>(arguments.keys)));
    ids_ = device_array<int32_t>(int64_t{kSteps} * layers_ * arguments.batch * arguments.topk);
    if (peer_.scores != nullptr) {
      scores_ = device_array<float>(int64_t{arguments.batch} * arguments.keys);
      schedule_ = device_array<int32_t>(1024);
    }
    DOSA_CUDA(cudaStreamCreate(&stream_));
  }

  void run() {
    std::printf("B %d N %lld H %d K %d, %d layers, %s\n", arguments_.batch,
                static_cast<long long>(arguments_.keys), arguments_.heads, arguments_.topk, layers_,
                arguments_.files.empty() ? "random walk" : arguments_.files.c_str());
    contend("witnesses", [&](int step, int layer) { ours(Memory::kOwn, step, layer); });
    overlap();
    contend("useless", [&](int step, int layer) { ours(Memory::kUseless, step, layer); });
    contend("none", [&](int step, int layer) { ours(Memory::kNone, step, layer); });
    contend("records",
            [&](int step, int layer) { ours(Memory::kOwn, step, layer, DOSA_MODE_FULL); });
    contend(
        "scores", [&](int step, int layer) { dense(step, layer); }, false);
    if (peer_.scores != nullptr) {
      contend("peer", [&](int step, int layer) { peer(step, layer, true); });
      contend(
          "peer scores", [&](int step, int layer) { peer(step, layer, false); }, false);
    }
    if (arguments_.repeats > 0) measure();
    if (arguments_.latency > 0) measure_latency();
    if (!arguments_.json.empty()) write_json();
  }

 private:
  using Work = std::function<void(int step, int layer)>;
  struct Contender {
    std::string name;
    cudaGraphExec_t graph;
    std::vector<double> us;
  };

  /// Queries of each step and layer, as the calls want them: (B, H, 128).
  void gather_queries() {
    const int64_t width = int64_t{arguments_.heads} * 128;
    const int64_t calls = int64_t{kTurn} * layers_;
    q_ = device_array<uint8_t>(calls * arguments_.batch * width);
    weights_ = device_array<float>(calls * arguments_.batch * arguments_.heads);
    const int64_t room = std::max<int64_t>(1, sequence_.rows - kTurn);
    for (int64_t call = 0; call < calls; ++call) {
      for (int64_t b = 0; b < arguments_.batch; ++b) {
        const int64_t row = (b * 7 + call % layers_ * 13) % room + call / layers_;
        DOSA_CUDA(cudaMemcpyAsync(q_ + (call * arguments_.batch + b) * width,
                                  sequence_.q + row * width, static_cast<size_t>(width),
                                  cudaMemcpyDeviceToDevice));
        DOSA_CUDA(cudaMemcpyAsync(weights_ + (call * arguments_.batch + b) * arguments_.heads,
                                  sequence_.weights + row * arguments_.heads,
                                  static_cast<size_t>(arguments_.heads) * 4,
                                  cudaMemcpyDeviceToDevice));
      }
    }
  }

  void make_states() {
    require(dosa_witness_bytes(arguments_.topk, &state_bytes_));
    const size_t words = state_bytes_ / 4;
    const size_t each = words * static_cast<size_t>(layers_) * arguments_.batch;
    own_ = device_copy(std::vector<uint32_t>(each));
    std::vector<uint32_t> random(each * kSteps);
    std::mt19937 generator(3);
    for (size_t at = 0; at < random.size(); at += words) {
      random[at] = static_cast<uint32_t>(words - 1);
      for (size_t i = 1; i < words; ++i) {
        random[at + i] = static_cast<uint32_t>(generator() % arguments_.keys);
      }
      std::sort(random.begin() + at + 1, random.begin() + at + words);
    }
    random_ = device_copy(random);
    useless_ = device_copy(random);
    random_bytes_ = random.size() * 4;
  }

  [[nodiscard]] int64_t call_of(int step, int layer) const {
    return int64_t{row_of(step)} * layers_ + layer;
  }

  [[nodiscard]] int32_t* ids_of(int step, int layer) const {
    return ids_ + (int64_t{step} * layers_ + layer) * arguments_.batch * arguments_.topk;
  }

  [[nodiscard]] dosa_paged_problem problem(int step, int layer) const {
    dosa_paged_problem problem{};
    problem.struct_size = sizeof problem;
    problem.cache = &cache_;
    problem.batch = arguments_.batch;
    problem.max_context = arguments_.keys;
    problem.next_n = 1;
    problem.num_heads = arguments_.heads;
    problem.topk = arguments_.topk;
    problem.q = q_ + call_of(step, layer) * arguments_.batch * arguments_.heads * 128;
    problem.q_stride = int64_t{arguments_.heads} * 128;
    problem.weights = weights_ + call_of(step, layer) * arguments_.batch * arguments_.heads;
    problem.weights_stride = arguments_.heads;
    problem.context_lens = lengths_;
    problem.context_lens_stride = 1;
    problem.block_table = pages_.table + int64_t{layer} * arguments_.batch * pages_.blocks;
    problem.block_table_stride = problem.block_table_blocks = pages_.blocks;
    problem.witness_count = arguments_.batch;
    problem.witness_stride = static_cast<int64_t>(state_bytes_);
    return problem;
  }

  void ours(Memory memory, int step, int layer, int mode = DOSA_MODE_AUTO) {
    dosa_paged_problem call = problem(step, layer);
    const int64_t words = static_cast<int64_t>(state_bytes_ / 4) * arguments_.batch;
    if (memory == Memory::kOwn) call.witnesses = own_ + layer * words;
    if (memory == Memory::kUseless) {
      call.witnesses = useless_ + (int64_t{step} * layers_ + layer) * words;
    }
    dosa_options options;
    require(dosa_cuda_options_init(&options, sizeof options));
    options.mode = mode;
    size_t bytes = 0;
    require(dosa_cuda_paged_workspace_bytes(&call, &options, &bytes));
    if (workspace_ == nullptr) {
      workspace_ = device_array<uint8_t>(static_cast<int64_t>(bytes));
      std::printf("workspace %.1f MiB\n", static_cast<double>(bytes) / 1048576.0);
    }
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids_of(step, layer);
    output.indices_stride = arguments_.topk;
    require(dosa_cuda_paged_topk(&call, &options, &output, workspace_, bytes, stream_));
  }

  void dense(int step, int layer) {
    if (scores_ == nullptr) {
      scores_ = device_array<float>(int64_t{arguments_.batch} * arguments_.keys);
    }
    const dosa_paged_problem call = problem(step, layer);
    require(dosa_cuda_paged_scores(&call, scores_, arguments_.keys, stream_));
  }

  void peer(int step, int layer, bool select) {
    const dosa_paged_problem call = problem(step, layer);
    require(peer_.scores(call.q, cache_.pages, cache_.num_pages, call.weights, lengths_,
                         call.block_table, pages_.blocks, schedule_, arguments_.batch,
                         arguments_.heads, scores_, arguments_.keys, stream_) == 0,
            "the peer's scores failed");
    if (!select) return;
    require(peer_.select(scores_, arguments_.keys, lengths_, arguments_.batch, arguments_.topk,
                         ids_of(step, layer), stream_) == 0,
            "the peer's selection failed");
  }

  /// Captures the steps of a contender, runs them once and, where `answers`, compares the ids.
  void contend(const std::string& name, const Work& work, bool answers = true) {
    if (memory_shown_ == 0 && peer_.schedule != nullptr) {
      require(peer_.schedule(lengths_, arguments_.batch, schedule_, stream_) == 0,
              "the peer's schedule failed");
      memory_shown_ = 1;
    }
    work(0, 0);  // loads the code, makes buffers
    DOSA_CUDA(cudaStreamSynchronize(stream_));
    cudaGraph_t graph = nullptr;
    Contender contender{name, nullptr, {}};
    DOSA_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int step = 0; step < kSteps; ++step) {
      for (int layer = 0; layer < layers_; ++layer) work(step, layer);
    }
    DOSA_CUDA(cudaStreamEndCapture(stream_, &graph));
    DOSA_CUDA(cudaGraphInstantiate(&contender.graph, graph, 0));
    const size_t count = size_t{kSteps} * layers_ * arguments_.batch * arguments_.topk;
    if (answers) DOSA_CUDA(cudaMemsetAsync(ids_, 0xa5, count * 4, stream_));
    reset_useless();
    DOSA_CUDA(cudaGraphLaunch(contender.graph, stream_));
    DOSA_CUDA(cudaStreamSynchronize(stream_));
    contenders_.push_back(contender);
    if (!answers) return;
    std::vector<int32_t> ids(count);
    DOSA_CUDA(cudaMemcpy(ids.data(), ids_, count * 4, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < count; at += arguments_.topk) {
      std::sort(ids.begin() + at, ids.begin() + at + arguments_.topk);
    }
    if (expected_.empty()) expected_ = ids;
    size_t different = 0;
    for (size_t i = 0; i < count; ++i) different += ids[i] != expected_[i] ? 1 : 0;
    if (different != 0) std::printf("%s: %zu ids DIFFER\n", name.c_str(), different);
  }

  /// How many winners the first request shares with the step before.
  void overlap() {
    const int topk = arguments_.topk;
    std::vector<int32_t> common(topk);
    double share = 0.0;
    for (int step = 1; step < kTurn; ++step) {
      const auto before = expected_.begin() + int64_t{step - 1} * layers_ * arguments_.batch * topk;
      const auto now = expected_.begin() + int64_t{step} * layers_ * arguments_.batch * topk;
      const auto end =
          std::set_intersection(before, before + topk, now, now + topk, common.begin());
      share += static_cast<double>(end - common.begin()) / topk / (kTurn - 1);
    }
    overlap_ = share;
    std::printf("winners shared with the step before: %.3f\n", share);
  }

  void reset_useless() {
    DOSA_CUDA(cudaMemcpyAsync(useless_, random_, random_bytes_, cudaMemcpyDeviceToDevice, stream_));
  }

  double time_graph(cudaGraphExec_t graph) {
    if (begin_ == nullptr) {
      DOSA_CUDA(cudaEventCreate(&begin_));
      DOSA_CUDA(cudaEventCreate(&end_));
    }
    DOSA_CUDA(cudaEventRecord(begin_, stream_));
    DOSA_CUDA(cudaGraphLaunch(graph, stream_));
    DOSA_CUDA(cudaEventRecord(end_, stream_));
    DOSA_CUDA(cudaEventSynchronize(end_));
    float ms = 0.0f;
    DOSA_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return 1e3 * static_cast<double>(ms);
  }

  void measure() {
    for (int repeat = -2; repeat < arguments_.repeats; ++repeat) {  // the first two warm up
      for (size_t i = 0; i < contenders_.size(); ++i) {
        Contender& contender = contenders_[(i + repeat + 2) % contenders_.size()];
        reset_useless();
        const double us = time_graph(contender.graph) / (kSteps * layers_);
        if (repeat >= 0) contender.us.push_back(us);
      }
    }
    for (Contender& contender : contenders_) {
      std::vector<double> us = contender.us;
      std::sort(us.begin(), us.end());
      std::printf("  %-12s %9.2f us (spread %.2f)\n", contender.name.c_str(), us[us.size() / 2],
                  us.back() - us.front());
    }
  }

  /// One step after another, each in a graph launch of its own.
  void measure_latency() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    DOSA_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    ours(Memory::kOwn, 0, 0);
    DOSA_CUDA(cudaStreamEndCapture(stream_, &graph));
    DOSA_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    DOSA_CUDA(cudaMemGetInfo(&before, &total));
    for (int i = -10; i < arguments_.latency; ++i) {
      const double us = time_graph(executable);
      if (i >= 0) latency_us_.push_back(us);
    }
    DOSA_CUDA(cudaMemGetInfo(&after, &total));
    std::vector<double> us = latency_us_;
    std::sort(us.begin(), us.end());
    std::printf("  %d launches of one step: median %.2f us, 99.9%% %.2f us, memory %lld bytes\n",
                arguments_.latency, us[us.size() / 2], us[us.size() * 999 / 1000],
                static_cast<long long>(before) - static_cast<long long>(after));
  }

  static void write_list(std::FILE* file, const std::vector<double>& values) {
    const char* between = "";
    for (const double value : values) {
      std::fprintf(file, "%s%.3f", between, value);
      between = ", ";
    }
  }

  void write_json() const {
    std::FILE* const file = std::fopen(arguments_.json.c_str(), "w");
    if (file == nullptr) throw std::runtime_error(arguments_.json + ": cannot be written");
    std::fprintf(file,
                 "{\"batch\": %d, \"keys\": %lld, \"heads\": %d, \"topk\": %d, \"layers\": %d, "
                 "\"input\": \"%s\", \"overlap\": %.4f, \"latency_us\": [",
                 arguments_.batch, static_cast<long long>(arguments_.keys), arguments_.heads,
                 arguments_.topk, layers_,
                 arguments_.files.empty() ? "random walk" : arguments_.files.c_str(), overlap_);
    write_list(file, latency_us_);
    std::fprintf(file, "], \"us\": {");
    const char* between = "";
    for (const Contender& contender : contenders_) {
      std::fprintf(file, "%s\"%s\": [", between, contender.name.c_str());
      write_list(file, contender.us);
      std::fprintf(file, "]");
      between = ", ";
    }
    std::fprintf(file, "}}\n");
    std::fclose(file);
  }

  const Arguments& arguments_;
  Sequence sequence_;
  Peer peer_;
  int layers_ = 1;
  Pages pages_;
  dosa_page_cache cache_{};
  uint8_t* q_ = nullptr;
  float* weights_ = nullptr;
  int32_t* lengths_ = nullptr;
  int32_t* ids_ = nullptr;
  uint32_t* own_ = nullptr;
  uint32_t* useless_ = nullptr;
  uint32_t* random_ = nullptr;
  size_t random_bytes_ = 0;
  size_t state_bytes_ = 0;
  uint8_t* workspace_ = nullptr;
  float* scores_ = nullptr;
  int32_t* schedule_ = nullptr;
  int memory_shown_ = 0;
  double overlap_ = 0.0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::vector<int32_t> expected_;
  std::vector<Contender> contenders_;
  std::vector<double> latency_us_;
};

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  try {
    const dosa::bench::Arguments arguments = dosa::bench::parse(argc, argv);
    dosa::bench::Measurement(arguments).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode: %s\n", error.what());
    return 1;
  }
  return 0;
}
