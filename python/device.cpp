// SPDX-License-Identifier: Apache-2.0
// The calls of dosa_cuda.h. Work is enqueued on the caller's stream; nothing is copied or awaited.
#include <dosa/dosa_cuda.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "device_call.hpp"
#include "merge_lists.hpp"
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

/// The structure that a call fills on the device, as bytes of its own; none is a null pointer.
template <typename Type>
Type* counts(DeviceArrays& arrays, const char* name, nb::handle object, std::int64_t number) {
  std::int64_t stride = 0;
  auto* memory = arrays.write<std::uint8_t, 2>(name, object, Element::kCode, {"rows", "bytes"},
                                               {number, sizeof(Type)}, stride);
  return reinterpret_cast<Type*>(memory);
}

void topk(const DeviceProblem& problem, const Options& options, nb::handle indices,
          nb::handle scores, nb::handle rows, nb::handle stats, nb::handle workspace,
          std::uintptr_t stream) {
  DeviceArrays arrays = problem.source();
  const std::int64_t num_queries = problem.get().num_queries;
  const dosa_options call = device_options(options);
  dosa_output output =
      selection_output(arrays, indices, scores, "Q", {num_queries, problem.get().topk});
  output.rows = counts<dosa_row_stats>(arrays, "rows", rows, num_queries);
  output.stats = counts<dosa_stats>(arrays, "stats", stats, 1);
  const Scratch scratch(arrays, workspace);
  enqueue(arrays.device(), [&] {
    return dosa_cuda_topk(&problem.get(), &call, &output, scratch.data, scratch.bytes,
                          stream_of(stream));
  });
}

/// The counts that a call has left in `bytes`.
nb::dict read_stats(const nb::bytes& bytes) {
  dosa_stats stats{};
  if (bytes.size() != sizeof stats) {
    throw Refusal(Refusal::Kind::kValue, "stats", std::to_string(bytes.size()) + " bytes",
                  std::to_string(sizeof stats));
  }
  std::memcpy(&stats, bytes.c_str(), sizeof stats);
  return stats_dict(stats);
}

/// Returns (message, report); the message is empty where all was right.
nb::tuple verify(const DeviceProblem& problem, const Options& options) {
  const dosa_options call = device_options(options);
  dosa_cuda_verification found{};
  found.struct_size = sizeof found;
  std::string message;
  enqueue(problem.source().device(), [&] {
    const dosa_status status = dosa_cuda_verify(&problem.get(), &call, &found);
    if (status != DOSA_CERTIFICATE) return status;
    message = dosa_last_error();
    return DOSA_OK;
  });
  nb::dict dict = audit_dict(found);
  dict["visible"] = found.visible;
  dict["bounded"] = found.bounded;
  dict["most_used"] = found.most_used;
  dict["used_row"] = found.used_row;
  dict["used_key"] = found.used_key;
  dict["seconds"] = found.seconds;
  return nb::make_tuple(message, dict);
}

void merge(const Lists<DeviceArrays>& lists, std::int32_t topk, std::int32_t order,
           nb::handle indices, nb::handle scores, std::uintptr_t stream) {
  DeviceArrays arrays = lists.source();
  dosa_candidates call = lists.get();
  call.topk = topk;
  call.order = order;
  const dosa_output output = selection_output(arrays, indices, scores, "Q", {call.num_rows, topk});
  enqueue(arrays.device(), [&] { return dosa_cuda_merge_topk(&call, &output, stream_of(stream)); });
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
             nb::arg("scores").none(), nb::arg("rows").none(), nb::arg("stats").none(),
             nb::arg("workspace"), nb::arg("stream"));
  module.attr("STATS_BYTES") = sizeof(dosa_stats);
  module.def("read_stats", &read_stats, nb::arg("bytes"));
  module.def("device_verify", &verify, nb::arg("problem"), nb::arg("options"));
  module.def("device_scores", &scores, nb::arg("problem"), nb::arg("options"), nb::arg("row_begin"),
             nb::arg("row_end"), nb::arg("out"), nb::arg("workspace"), nb::arg("stream"));
  bind_lists<DeviceArrays>(module, "DeviceLists");
  module.def("device_merge", &merge, nb::arg("lists"), nb::arg("topk"), nb::arg("order"),
             nb::arg("indices"), nb::arg("scores").none(), nb::arg("stream"));
  bind_device_decode(module);
  bind_device_memory(module);
}

}  // namespace dosa::python
