// SPDX-License-Identifier: Apache-2.0
// The calls of dosa_cuda.h. Work is enqueued on the caller's stream; nothing is copied or awaited.
#include <dosa/dosa_cuda.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "device_call.hpp"
#include "problem.hpp"
#include "windows.hpp"

namespace dosa::python {
namespace {

using DeviceProblem = Problem<DeviceArrays>;

std::size_t workspace_bytes(const DeviceProblem& problem, const Options& options, bool scores) {
  dosa_options call = device_options(options);
  if (scores) call.mode = DOSA_MODE_FULL;
  std::size_t needed = 0;
  check(dosa_cuda_workspace_bytes(&problem.get(), &call, &needed));
  return needed;
}

void topk(const DeviceProblem& problem, const Options& options, nb::handle indices,
          nb::handle scores, nb::handle workspace, std::uintptr_t stream) {
  DeviceArrays arrays = problem.source();
  const std::int64_t num_queries = problem.get().num_queries;
  const std::int64_t kept = problem.get().topk;
  const dosa_options call = device_options(options);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = arrays.write<std::int32_t, 2>("indices", indices, Element::kInt32, {"Q", "K"},
                                                 {num_queries, kept}, output.indices_stride);
  output.scores = arrays.write<float, 2>("scores", scores, Element::kFloat32, {"Q", "K"},
                                         {num_queries, kept}, output.scores_stride);
  const Scratch scratch(arrays, workspace);
  enqueue(arrays.device(), [&] {
    return dosa_cuda_topk(&problem.get(), &call, &output, scratch.data, scratch.bytes,
                          stream_of(stream));
  });
}

void scores(const DeviceProblem& problem, const Options& options, std::int64_t row_begin,
            std::int64_t row_end, nb::handle out, nb::handle workspace, std::uintptr_t stream) {
  DeviceArrays arrays = problem.source();
  const dosa_problem& inputs = problem.get();
  const std::int64_t rows = row_end - row_begin;
  const dosa_options call = device_options(options);
  std::int64_t stride = 0;
  auto* cells = arrays.write<float, 2>("out", out, Element::kFloat32, {"rows", "N"},
                                       {rows, inputs.num_keys}, stride);
  if (rows == 0 || inputs.num_keys == 0) return;
  const Scratch scratch(arrays, workspace);
  const auto from = [&](const std::int32_t* bounds) {
    return bounds == nullptr ? nullptr : bounds + row_begin;
  };
  const WindowedScores windowed{
      cells, stride, rows, inputs.num_keys, from(inputs.k_start), from(inputs.k_end)};
  cudaError_t hidden = cudaSuccess;
  enqueue(arrays.device(), [&] {
    const dosa_status status = dosa_cuda_scores(&inputs, &call, row_begin, row_end, cells, stride,
                                                scratch.data, scratch.bytes, stream_of(stream));
    if (status == DOSA_OK) hidden = launch_hide_outside_windows(windowed, stream_of(stream));
    return status;
  });
  check_cuda(hidden, "hide_outside_windows_kernel");
}

}  // namespace

void bind_device(nb::module_& module) {
  bind_problem<DeviceProblem>(module, "DeviceProblem");
  module.def("device_workspace_bytes", &workspace_bytes, nb::arg("problem"), nb::arg("options"),
             nb::arg("scores"));
  module.def("device_topk", &topk, nb::arg("problem"), nb::arg("options"), nb::arg("indices"),
             nb::arg("scores").none(), nb::arg("workspace"), nb::arg("stream"));
  module.def("device_scores", &scores, nb::arg("problem"), nb::arg("options"), nb::arg("row_begin"),
             nb::arg("row_end"), nb::arg("out"), nb::arg("workspace"), nb::arg("stream"));
  bind_device_decode(module);
  bind_device_memory(module);
}

}  // namespace dosa::python
