// SPDX-License-Identifier: Apache-2.0
// The merge of lists of scored keys on the device, by the number of lists and by the room for
// entries, against reading and writing the same bytes.
//
// merge [--rows R] [--topk K] [--repeats N] [--json FILE]
//
// Lists are K entries with ids of their own, scores independent of them ("by id") or descending
// ("by score"). Every room gives the same bytes, which is checked.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "select/merge_sm90.cuh"

namespace dosa::bench {
namespace {

constexpr int kThreads = 256;

__device__ float hashed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-24f;
}

__global__ void fill_lists(float* scores, int32_t* ids, int64_t rows, int lists, int width,
                           bool by_score) {
  const int64_t total = rows * lists * width;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += stride) {
    const int place = static_cast<int>(i % width);
    const float drawn = hashed(static_cast<uint64_t>(i) + 1);
    scores[i] =
        by_score ? 1 - (static_cast<float>(place) + drawn) / static_cast<float>(width) : drawn;
    ids[i] = place * lists + static_cast<int>(i / width / rows);
  }
}

/// Of two answers, places that differ.
__global__ void count_different(const int32_t* one, const int32_t* other, int64_t count,
                                unsigned long long* different) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    if (one[i] != other[i]) atomicAdd(different, 1ull);
  }
}

template <class T>
T* allocate(int64_t count) {
  void* memory = nullptr;
  DOSA_CUDA(cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T)));
  return static_cast<T*>(memory);
}

template <class Call>
std::vector<float> times(int repeats, Call call) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  DOSA_CUDA(cudaEventCreate(&begin));
  DOSA_CUDA(cudaEventCreate(&end));
  std::vector<float> samples;
  for (int i = -2; i < repeats; ++i) {
    DOSA_CUDA(cudaEventRecord(begin));
    call();
    DOSA_CUDA(cudaEventRecord(end));
    DOSA_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    DOSA_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) samples.push_back(ms);
  }
  DOSA_CUDA(cudaEventDestroy(begin));
  DOSA_CUDA(cudaEventDestroy(end));
  return samples;
}

float median(std::vector<float> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Arguments {
  int64_t rows = 16384;
  int topk = 2048;
  int repeats = 9;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--rows") arguments.rows = std::atoll(argv[i + 1]);
    if (name == "--topk") arguments.topk = std::atoi(argv[i + 1]);
    if (name == "--repeats") arguments.repeats = std::atoi(argv[i + 1]);
    if (name == "--json") arguments.json = argv[i + 1];
  }
  return arguments;
}

class Report {
 public:
  explicit Report(const std::string& path)
      : file_(path.empty() ? nullptr : std::fopen(path.c_str(), "w")) {
    if (!path.empty() && file_ == nullptr) throw std::runtime_error("cannot write " + path);
    if (file_ != nullptr) std::fprintf(file_, "[");
  }
  ~Report() {
    if (file_ == nullptr) return;
    std::fprintf(file_, "\n]\n");
    std::fclose(file_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void add(const Arguments& arguments, int lists, const char* order, int room,
           const std::vector<float>& samples) {
    if (file_ == nullptr) return;
    std::fprintf(file_, "%s\n  {\"rows\": %lld, \"topk\": %d, \"lists\": %d, \"order\": \"%s\", ",
                 first_ ? "" : ",", static_cast<long long>(arguments.rows), arguments.topk, lists,
                 order);
    std::fprintf(file_, "\"room\": %d, \"ms\": [", room);
    for (size_t i = 0; i < samples.size(); ++i) {
      std::fprintf(file_, "%s%.4f", i == 0 ? "" : ", ", static_cast<double>(samples[i]));
    }
    std::fprintf(file_, "]}");
    first_ = false;
  }

 private:
  std::FILE* file_;
  bool first_ = true;
};

void measure(const Arguments& arguments, int lists, bool by_score, Report& report) {
  const int64_t answers = arguments.rows * arguments.topk;
  const int64_t entries = answers * lists;
  auto* const scores = allocate<float>(entries);
  auto* const ids = allocate<int32_t>(entries);
  auto* const found = allocate<int32_t>(answers);
  auto* const expected = allocate<int32_t>(answers);
  auto* const values = allocate<float>(answers);
  auto* const different = allocate<unsigned long long>(1);
  DOSA_CUDA(cudaMemset(different, 0, sizeof *different));
  fill_lists<<<4096, kThreads>>>(scores, ids, arguments.rows, lists, arguments.topk, by_score);
  DOSA_CUDA(cudaGetLastError());
  select::MergeParams params{};
  params.scores = scores;
  params.ids = ids;
  params.list_stride = answers;
  params.row_stride = arguments.topk;
  params.rows = arguments.rows;
  params.lists = lists;
  params.width = arguments.topk;
  params.topk = arguments.topk;
  params.indices = expected;
  params.indices_stride = arguments.topk;
  params.out_scores = values;
  params.scores_stride = arguments.topk;
  DOSA_CUDA(select::launch_merge_sm90(params, nullptr));
  params.indices = found;
  const char* const order = by_score ? "by score" : "by id";
  std::printf("%3d lists %-9s", lists, order);
  for (const int room : {0, 8192, 10752, 16384, 24576}) {
    params.room = room;
    DOSA_CUDA(cudaMemset(found, 0xa5, static_cast<size_t>(answers) * sizeof *found));
    const std::vector<float> samples =
        times(arguments.repeats, [&] { DOSA_CUDA(select::launch_merge_sm90(params, nullptr)); });
    count_different<<<4096, kThreads>>>(found, expected, answers, different);
    DOSA_CUDA(cudaGetLastError());
    report.add(arguments, lists, order, room, samples);
    std::printf("  room %5d %7.3f", room, static_cast<double>(median(samples)));
  }
  const std::vector<float> copies = times(arguments.repeats, [&] {
    // As many bytes read and written: half of them each way.
    DOSA_CUDA(cudaMemcpyAsync(scores, ids, static_cast<size_t>(entries + answers) / 2 * 4,
                              cudaMemcpyDeviceToDevice));
    DOSA_CUDA(cudaMemcpyAsync(scores, ids, static_cast<size_t>(entries + answers) / 2 * 4,
                              cudaMemcpyDeviceToDevice));
  });
  report.add(arguments, lists, "copy of as many bytes", 0, copies);
  unsigned long long wrong = 0;
  DOSA_CUDA(cudaMemcpy(&wrong, different, sizeof wrong, cudaMemcpyDeviceToHost));
  std::printf("  copy %7.3f ms, %llu ids differ\n", static_cast<double>(median(copies)), wrong);
  std::fflush(stdout);
  for (void* const memory :
       {static_cast<void*>(scores), static_cast<void*>(ids), static_cast<void*>(found),
        static_cast<void*>(expected), static_cast<void*>(values), static_cast<void*>(different)}) {
    DOSA_CUDA(cudaFree(memory));
  }
  if (wrong != 0) throw std::runtime_error("the room changed an answer");
}

}  // namespace
}  // namespace dosa::bench

int main(int argc, char** argv) {
  using namespace dosa::bench;
  const Arguments arguments = parse(argc, argv);
  try {
    Report report(arguments.json);
    for (const int lists : {2, 4, 8, 16, 64}) {
      for (const bool by_score : {false, true}) measure(arguments, lists, by_score, report);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
