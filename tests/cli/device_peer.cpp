// SPDX-License-Identifier: Apache-2.0
// A library that answers for somebody else's on the device, for `dosa bench --backend cuda --peer`:
// the first of the K ids of each row is left out.
#include <cuda_runtime_api.h>
#include <dosa/dosa_cuda.h>

extern "C" __attribute__((visibility("default"))) int dosa_bench_peer_cuda_topk(
    const dosa_problem* problem, int32_t* ids, void* stream) {
  static void* workspace = nullptr;  // kept, as a serving engine would
  static size_t room = 0;
  dosa_options options;
  if (dosa_cuda_options_init(&options, sizeof options) != DOSA_OK) return 1;
  options.mode = DOSA_MODE_FULL;
  size_t bytes = 0;
  if (dosa_cuda_workspace_bytes(problem, &options, &bytes) != DOSA_OK) return 2;
  if (room < bytes) {
    cudaFree(workspace);
    if (cudaMalloc(&workspace, bytes) != cudaSuccess) return 3;
    room = bytes;
  }
  dosa_output output = {};
  output.struct_size = sizeof output;
  output.indices = ids;
  output.indices_stride = problem->topk;
  if (dosa_cuda_topk(problem, &options, &output, workspace, bytes, stream) != DOSA_OK) return 4;
  const size_t stride = static_cast<size_t>(problem->topk) * sizeof(int32_t);
  const cudaError_t left_out = cudaMemset2DAsync(
      ids, stride, 0xff, sizeof(int32_t), problem->num_queries, static_cast<cudaStream_t>(stream));
  return left_out == cudaSuccess ? 0 : 5;
}
