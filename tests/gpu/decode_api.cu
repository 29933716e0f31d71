// SPDX-License-Identifier: Apache-2.0
// The decode calls of the device interface around the answer itself: misuse is refused before any
// work (no device needed for that), chunks, graphs and streams, scores, insertion and gathering.
// Exit code 77: the parts that need an sm_90 device were skipped.
#include <functional>
#include <numeric>

#include "gpu/paged_checks.hpp"

namespace dosa::testing {
namespace {

/// A valid call whose device pointers are never followed, as it is changed to be refused.
struct Call {
  dosa_page_cache cache{};
  dosa_paged_problem problem{};
  dosa_options options{};
  dosa_output output{};
  void* workspace = nullptr;
  size_t bytes = 0;

  Call() {
    constexpr uintptr_t kNowhere = 4096;
    auto* const bytes_there = reinterpret_cast<uint8_t*>(kNowhere);
    auto* const ids_there = reinterpret_cast<int32_t*>(kNowhere);
    auto* const floats_there = reinterpret_cast<float*>(kNowhere);
    cache.struct_size = sizeof cache;
    cache.pages = bytes_there;
    cache.page_stride = 64 * (kDim + 4);
    cache.num_pages = 100;
    cache.page_size = 64;
    cache.head_dim = kDim;
    problem.struct_size = sizeof problem;
    problem.cache = &cache;
    problem.batch = 4;
    problem.max_context = 6400;
    problem.next_n = 1;
    problem.num_heads = 32;
    problem.topk = 64;
    problem.q = bytes_there;
    problem.q_stride = 32 * kDim;
    problem.weights = floats_there;
    problem.weights_stride = 32;
    problem.context_lens = ids_there;
    problem.context_lens_stride = 1;
    problem.block_table = ids_there;
    problem.block_table_stride = problem.block_table_blocks = 100;
    dosa_cuda_options_init(&options, sizeof options);
    output.struct_size = sizeof output;
    output.indices = ids_there;
    output.indices_stride = 64;
    workspace = bytes_there;
    dosa_cuda_paged_workspace_bytes(&problem, &options, &bytes);
  }
};

void refuse(const char* argument, dosa_status status, const std::function<void(Call&)>& spoil) {
  Call call;
  spoil(call);
  const dosa_status got = dosa_cuda_paged_topk(&call.problem, &call.options, &call.output,
                                               call.workspace, call.bytes, nullptr);
  expect(got == status, argument, "status " + std::to_string(got));
  expect(std::strstr(dosa_last_error(), argument) != nullptr, argument, dosa_last_error());
}

void check_misuse() {
  refuse("problem.q", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.q = nullptr; });
  refuse("problem.q", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.q += 8; });
  refuse("problem.q_stride", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.q_stride += 8; });
  refuse("problem.topk", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.topk = 4097; });
  refuse("problem.next_n", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.next_n = 9; });
  refuse("problem.batch", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.batch = -1; });
  refuse("problem.context_lens", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.problem.context_lens = nullptr; });
  refuse("problem.index_offset", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.options.index_form = DOSA_INDEX_OFFSET; });
  refuse("cache.head_dim", DOSA_UNSUPPORTED, [](Call& c) {
    c.cache.head_dim = 64;
    c.problem.q_stride = 32 * 64;
  });
  refuse("cache.page_size", DOSA_INVALID_ARGUMENT, [](Call& c) { c.cache.page_size = 48; });
  refuse("cache.page_stride", DOSA_INVALID_ARGUMENT, [](Call& c) { c.cache.page_stride -= 4; });
  refuse("options.mode", DOSA_UNSUPPORTED, [](Call& c) { c.options.mode = DOSA_MODE_DOSA; });
  refuse("options.workspace_limit", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.options.workspace_limit = 1000; });
  refuse("output.indices_stride", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.output.indices_stride = 63; });
  refuse("workspace_bytes", DOSA_WORKSPACE_TOO_SMALL, [](Call& c) { --c.bytes; });
  refuse("workspace", DOSA_INVALID_ARGUMENT, [](Call& c) { c.workspace = nullptr; });
}

/// The workspace of the largest shapes stays within its limit, and does not follow the context.
void check_workspace() {
  for (const int64_t batch : {1, 64, 4096, 32768}) {
    for (const int next_n : {1, 8}) {
      Call call;
      call.problem.batch = batch;
      call.problem.next_n = next_n;
      call.problem.topk = 4096;
      call.problem.max_context = 1 << 20;
      call.problem.block_table_blocks = call.problem.block_table_stride = 1 << 14;
      size_t bytes = 0;
      dosa_status status = dosa_cuda_paged_workspace_bytes(&call.problem, &call.options, &bytes);
      expect(status == DOSA_OK && bytes <= call.options.workspace_limit, "workspace",
             std::to_string(bytes) + " bytes");
      size_t longer = 0;
      call.problem.max_context = 1 << 24;
      call.problem.block_table_blocks = call.problem.block_table_stride = 1 << 18;
      status = dosa_cuda_paged_workspace_bytes(&call.problem, &call.options, &longer);
      expect(status == DOSA_OK && longer == bytes, "workspace", std::to_string(longer) + " bytes");
    }
  }
}

/// A workspace limit that holds a few requests at a time gives the same bytes.
void check_chunks() {
  PagedSpec spec;
  spec.batch = 60;
  spec.next_n = 8;
  spec.topk = 600;
  spec.tokens = 3000;
  const PagedCase paged(spec, make_keys(spec, 90), 90);
  const PagedAnswer wanted = expected_answer(paged);
  PagedDevice device(paged);
  device.options.mode = DOSA_MODE_FULL;  // what is kept in shared memory is not answered in parts
  size_t quarter = 0;
  device.problem.batch = spec.batch / 4;
  dosa_cuda_paged_workspace_bytes(&device.problem, &device.options, &quarter);
  device.problem.batch = spec.batch;
  device.options.workspace_limit = quarter;
  size_t bytes = 0;
  dosa_cuda_paged_workspace_bytes(&device.problem, &device.options, &bytes);
  expect(bytes == quarter && bytes < device.bytes, "chunks", std::to_string(bytes) + " bytes");
  device.bytes = bytes;
  compare("chunks", spec, device.run(), wanted);
  compare("chunks, own states", spec, device.run(), wanted);
}

/// Captured once, replayed with other lengths and queries, repeatedly, on two streams at a time.
void check_replay() {
  PagedSpec spec;
  spec.batch = 5;
  spec.next_n = 2;
  spec.topk = 300;
  spec.tokens = 9000;
  PagedCase paged(spec, make_keys(spec, 95), 95);
  const PagedDevice devices[2] = {PagedDevice(paged), PagedDevice(paged)};
  cudaStream_t streams[2] = {};
  cudaGraphExec_t graphs[2] = {};
  for (int i = 0; i < 2; ++i) {
    cudaGraph_t graph = nullptr;
    DOSA_CUDA(cudaStreamCreate(&streams[i]));
    DOSA_CUDA(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeThreadLocal));
    devices[i].enqueue(streams[i]);
    DOSA_CUDA(cudaStreamEndCapture(streams[i], &graph));
    DOSA_CUDA(cudaGraphInstantiate(&graphs[i], graph, 0));
  }
  for (int round = 0; round < 20; ++round) {
    if (round % 5 == 0) paged.set_lengths();
    const PagedAnswer wanted = round % 5 == 0 ? expected_answer(paged) : PagedAnswer{};
    for (int i = 0; i < 2; ++i) {
      DOSA_CUDA(cudaMemcpy(devices[i].lengths.get(), paged.lengths.data(), paged.lengths.size() * 4,
                           cudaMemcpyHostToDevice));
      devices[i].ids.poison();
    }
    DOSA_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 2; ++i) DOSA_CUDA(cudaGraphLaunch(graphs[i], streams[i]));
    DOSA_CUDA(cudaDeviceSynchronize());
    const PagedAnswer first = devices[0].read();
    compare("replay, two streams", spec, devices[1].read(), first);
    if (round % 5 == 0) compare("replay, other lengths", spec, first, wanted);
  }
}

/// Dense paged scores are those of the prefill engine, which the expected answers come from.
void check_scores() {
  PagedSpec spec;
  spec.next_n = 3;
  spec.topk = 4096;  // all tokens of a row are in the answer
  spec.tokens = 3001;
  const PagedCase paged(spec, make_keys(spec, 99), 99);
  const PagedAnswer wanted = expected_answer(paged);
  PagedDevice device(paged);
  const DeviceArray<uint32_t> dense(static_cast<size_t>(paged.rows()) * spec.tokens);
  dense.poison();
  const dosa_status status = dosa_cuda_paged_scores(
      &device.problem, reinterpret_cast<float*>(dense.get()), spec.tokens, nullptr);
  expect(status == DOSA_OK, "scores", dosa_last_error());
  const std::vector<uint32_t> found = dense.host();
  size_t different = 0;
  for (int row = 0; row < paged.rows(); ++row) {
    for (int i = 0; i < spec.tokens; ++i) {
      const uint32_t bits = found[static_cast<size_t>(row) * spec.tokens + i];
      const uint32_t score = i < paged.length(row)
                                 ? wanted.scores[static_cast<size_t>(row) * spec.topk + i]
                                 : 0xa5a5a5a5u;
      const bool zeros = (bits << 1) == 0 && (score << 1) == 0;
      different += bits != score && !zeros ? 1 : 0;
    }
  }
  expect(different == 0, "scores", std::to_string(different) + " differ");
}

/// Insertion and gathering give the bytes of the host's calls.
void check_copies() {
  std::mt19937 random(3);
  for (const int page_size : {1, 64}) {
    for (const int format : {DOSA_SCALE_FP32, DOSA_SCALE_UE8M0}) {
      const int tokens = 1000;
      const int num_pages = 2000 / page_size + 1;
      std::vector<uint16_t> k(static_cast<size_t>(tokens) * kDim);
      for (uint16_t& bits : k) bits = static_cast<uint16_t>(random());  // NaN and Inf, too
      for (size_t i = 0; i < k.size() / 2; ++i)
        k[i] = static_cast<uint16_t>(k[i] % 0x1000 + 0x3800);
      for (int i = 0; i < 3 * kDim; ++i) k[i] = 0;
      std::vector<int64_t> slots(static_cast<size_t>(num_pages) * page_size);
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), random);
      slots.resize(tokens);
      slots[5] = -1;
      dosa_page_cache cache{};
      cache.struct_size = sizeof cache;
      cache.page_size = page_size;
      cache.head_dim = kDim;
      cache.page_stride = page_size * (kDim + 4) + 4;
      cache.num_pages = num_pages;
      std::vector<uint8_t> pages(static_cast<size_t>(cache.page_stride) * num_pages, 0xa5);
      const DeviceArray<uint8_t> device_pages(pages);
      const DeviceArray<uint16_t> device_k(k);
      const DeviceArray<int64_t> device_slots(slots);
      cache.pages = pages.data();
      dosa_paged_insert_problem insert{};
      insert.struct_size = sizeof insert;
      insert.cache = &cache;
      insert.num_tokens = tokens;
      insert.k = k.data();
      insert.k_stride = kDim;
      insert.slot_mapping = slots.data();
      insert.scale_format = format;
      expect(dosa_paged_insert(&insert) == DOSA_OK, "insert", dosa_last_error());
      cache.pages = device_pages.get();
      insert.k = device_k.get();
      insert.slot_mapping = device_slots.get();
      expect(dosa_cuda_paged_insert(&insert, nullptr) == DOSA_OK, "insert", dosa_last_error());
      expect(device_pages.host() == pages, "insert", "pages differ from the host's");

      const int blocks = (500 + page_size - 1) / page_size;
      std::vector<int32_t> table(2 * blocks);
      for (int32_t& page : table) page = static_cast<int32_t>(random() % num_pages);
      const std::vector<int32_t> first = {0, 500, 777};
      std::vector<uint8_t> keys(800 * kDim, 0x5a);
      std::vector<float> scales(800, -1.0f);
      const DeviceArray<uint8_t> device_keys(keys);
      const DeviceArray<float> device_scales(scales);
      const DeviceArray<int32_t> device_table(table);
      const DeviceArray<int32_t> device_first(first);
      dosa_paged_gather_problem gather{};
      gather.struct_size = sizeof gather;
      gather.cache = &cache;
      gather.batch = 2;
      gather.block_table_stride = gather.block_table_blocks = blocks;
      gather.num_keys = 800;
      gather.k_stride = kDim;
      cache.pages = pages.data();
      gather.block_table = table.data();
      gather.cu_seq_lens = first.data();
      gather.k = keys.data();
      gather.k_scale = scales.data();
      expect(dosa_paged_gather(&gather) == DOSA_OK, "gather", dosa_last_error());
      cache.pages = device_pages.get();
      gather.block_table = device_table.get();
      gather.cu_seq_lens = device_first.get();
      gather.k = device_keys.get();
      gather.k_scale = device_scales.get();
      expect(dosa_cuda_paged_gather(&gather, nullptr) == DOSA_OK, "gather", dosa_last_error());
      const std::vector<float> found = device_scales.host();
      expect(device_keys.host() == keys &&
                 std::memcmp(found.data(), scales.data(), found.size() * 4) == 0,
             "gather", "keys differ from the host's");
    }
  }
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"misuse", check_misuse, Part::When::kAnywhere},
                    {"memory", check_workspace, Part::When::kAnywhere},
                    {"chunks", check_chunks},
                    {"replay", check_replay},
                    {"scores", check_scores},
                    {"copies", check_copies}},
                   argc, argv);
}
