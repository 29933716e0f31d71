// SPDX-License-Identifier: Apache-2.0
// The device interface: misuse is refused before any work (no device needed for that), and a call
// can be captured in a CUDA graph. Exit code 77: the part that needs an sm_90 device was skipped.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "gpu/inputs.hpp"
#include "gpu/report.hpp"

namespace dosa::testing {
namespace {

/// A valid call whose pointers are never followed, as it is changed to be refused.
struct Call {
  dosa_problem problem{};
  dosa_options options{};
  dosa_output output{};
  void* workspace = nullptr;
  size_t bytes = 0;

  Call() {
    constexpr uintptr_t kNowhere = 4096;
    dosa_cuda_options_init(&options, sizeof options);
    problem.struct_size = sizeof problem;
    problem.num_queries = 100;
    problem.num_keys = 5000;
    problem.num_heads = 32;
    problem.head_dim = kDim;
    problem.topk = 64;
    problem.page_size = 64;
    problem.q = reinterpret_cast<const uint8_t*>(kNowhere);
    problem.q_stride = 32 * kDim;
    problem.k = problem.q;
    problem.k_stride = kDim;
    problem.k_scale = reinterpret_cast<const float*>(kNowhere);
    problem.weights = problem.k_scale;
    problem.weights_stride = 32;
    output.struct_size = sizeof output;
    output.indices = reinterpret_cast<int32_t*>(kNowhere);
    output.indices_stride = 64;
    workspace = reinterpret_cast<void*>(kNowhere);
    dosa_cuda_workspace_bytes(&problem, &options, &bytes);
  }
};

void refuse(const char* argument, dosa_status status, const std::function<void(Call&)>& spoil) {
  Call call;
  spoil(call);
  const dosa_status got = dosa_cuda_topk(&call.problem, &call.options, &call.output, call.workspace,
                                         call.bytes, nullptr);
  expect(got == status, argument, "status " + std::to_string(got));
  expect(std::strstr(dosa_last_error(), argument) != nullptr, argument, dosa_last_error());
}

void check_misuse() {
  refuse("problem.q", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.q = nullptr; });
  refuse("problem.k", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.k += 8; });
  refuse("problem.k_stride", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.k_stride = 136; });
  refuse("problem.q_stride", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.q_stride = 100; });
  refuse("problem.topk", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.topk = 0; });
  refuse("problem.topk", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.topk = 4097; });
  refuse("problem.num_heads", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.num_heads = 129; });
  refuse("problem.num_keys", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.num_keys = -1; });
  refuse("problem.head_dim", DOSA_UNSUPPORTED, [](Call& c) { c.problem.head_dim = 96; });
  refuse("problem.struct_size", DOSA_INVALID_ARGUMENT, [](Call& c) { c.problem.struct_size = 1; });
  refuse("options.mode", DOSA_INVALID_ARGUMENT, [](Call& c) { c.options.mode = 9; });
  refuse("options.threshold", DOSA_INVALID_ARGUMENT, [](Call& c) { c.options.threshold = 2; });
  refuse("options.forced_first", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.options.forced_first = -1; });
  refuse("options.allowance", DOSA_UNSUPPORTED,
         [](Call& c) { c.options.allowance = DOSA_ALLOWANCE_GROUPED; });
  refuse("options.aggregate", DOSA_UNSUPPORTED,
         [](Call& c) { c.options.aggregate = DOSA_AGGREGATE_TWO; });
  refuse("options.statistics", DOSA_UNSUPPORTED,
         [](Call& c) { c.options.statistics = DOSA_STATISTICS_SEEDS; });
  refuse("options.score_model", DOSA_INVALID_ARGUMENT, [](Call& c) { c.options.score_model = 5; });
  refuse("output.indices", DOSA_INVALID_ARGUMENT, [](Call& c) { c.output.indices = nullptr; });
  refuse("output.indices_stride", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.output.indices_stride = 63; });
  refuse("workspace_bytes", DOSA_WORKSPACE_TOO_SMALL, [](Call& c) { --c.bytes; });
  refuse("workspace", DOSA_INVALID_ARGUMENT, [](Call& c) { c.workspace = nullptr; });
  refuse("problem.page_table", DOSA_INVALID_ARGUMENT,
         [](Call& c) { c.options.index_form = DOSA_INDEX_SLOT; });
}

/// The workspace of the largest serving shape stays at 2 GiB.
void check_workspace_limit() {
  Call call;
  call.problem.num_queries = 32768;
  call.problem.num_keys = 1 << 20;
  for (const int heads : {32, 64, 128}) {
    for (const int topk : {2048, 4096}) {
      call.problem.num_heads = heads;
      call.problem.topk = topk;
      size_t bytes = 0;
      const dosa_status status = dosa_cuda_workspace_bytes(&call.problem, &call.options, &bytes);
      expect(status == DOSA_OK && bytes <= size_t{2} << 30, "workspace limit",
             std::to_string(bytes) + " bytes at H " + std::to_string(heads));
    }
  }
}

/// Captured once, replayed on other inputs in the same places: the same ids as a plain call.
void check_capture() {
  const int topk = 128;
  const HostInputs first = make_real(80, 40000, 32, 30);
  const HostInputs second = make_real(80, 40000, 32, 31);
  const DeviceInputs inputs(first, topk);
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = DOSA_MODE_DOSA;
  size_t bytes = 0;
  dosa_cuda_workspace_bytes(&inputs.problem, &options, &bytes);
  const DeviceArray<uint8_t> workspace(bytes);
  const DeviceArray<int32_t> ids(static_cast<size_t>(80 * topk));
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.get();
  output.indices_stride = topk;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  DOSA_CUDA(cudaStreamCreate(&stream));
  DOSA_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const dosa_status status =
      dosa_cuda_topk(&inputs.problem, &options, &output, workspace.get(), bytes, stream);
  DOSA_CUDA(cudaStreamEndCapture(stream, &graph));
  expect(status == DOSA_OK, "capture", dosa_last_error());
  DOSA_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  DOSA_CUDA(cudaMemcpy(inputs.q.get(), second.q.data(), second.q.size(), cudaMemcpyHostToDevice));
  DOSA_CUDA(cudaMemcpy(inputs.k.get(), second.k.data(), second.k.size(), cudaMemcpyHostToDevice));
  ids.poison();
  DOSA_CUDA(cudaGraphLaunch(executable, stream));
  DOSA_CUDA(cudaStreamSynchronize(stream));
  const std::vector<int32_t> replayed = ids.host();
  ids.poison();
  dosa_cuda_topk(&inputs.problem, &options, &output, workspace.get(), bytes, stream);
  DOSA_CUDA(cudaStreamSynchronize(stream));
  expect(replayed == ids.host(), "capture", "the replay's ids differ from a plain call's");
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"misuse", check_misuse, Part::When::kAnywhere},
                    {"memory", check_workspace_limit, Part::When::kAnywhere},
                    {"capture", check_capture}},
                   argc, argv);
}
