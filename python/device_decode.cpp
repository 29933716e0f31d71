// SPDX-License-Identifier: Apache-2.0
// The paged calls of dosa_cuda.h.
#include <dosa/dosa_cuda.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "device_call.hpp"
#include "paged_problem.hpp"

namespace dosa::python {
namespace {

using DeviceCache = Cache<DeviceArrays>;
using DeviceStep = PagedProblem<DeviceArrays>;

std::size_t paged_workspace_bytes(const DeviceStep& step, const Options& options) {
  const dosa_paged_problem problem = step.get();
  const dosa_options call = device_options(options);
  std::size_t needed = 0;
  check(dosa_cuda_paged_workspace_bytes(&problem, &call, &needed));
  return needed;
}

void paged_topk(const DeviceStep& step, const Options& options, nb::handle indices,
                nb::handle scores, nb::handle workspace, std::uintptr_t stream) {
  DeviceArrays arrays = step.source();
  const dosa_paged_problem problem = step.get();
  const dosa_options call = device_options(options);
  const dosa_output output =
      selection_output(arrays, indices, scores, "rows", {step.rows(), problem.topk});
  const Scratch scratch(arrays, workspace);
  enqueue(arrays.device(), [&] {
    return dosa_cuda_paged_topk(&problem, &call, &output, scratch.data, scratch.bytes,
                                stream_of(stream));
  });
}

void paged_scores(const DeviceStep& step, nb::handle out, std::uintptr_t stream) {
  DeviceArrays arrays = step.source();
  const dosa_paged_problem problem = step.get();
  std::int64_t stride = 0;
  auto* cells = arrays.write<float, 2>("out", out, Element::kFloat32, {"rows", "max_context"},
                                       {step.rows(), problem.max_context}, stride);
  if (step.rows() == 0 || problem.max_context == 0) return;
  enqueue(arrays.device(),
          [&] { return dosa_cuda_paged_scores(&problem, cells, stride, stream_of(stream)); });
}

void paged_gather(const DeviceCache& cache, nb::handle block_table, nb::handle cu_seq_lens,
                  nb::handle k, nb::handle k_scale, std::int64_t num_keys, std::uintptr_t stream) {
  DeviceArrays arrays = cache.source();
  dosa_paged_gather_problem problem =
      read_gather(arrays, cache, block_table, cu_seq_lens, num_keys);
  std::int64_t dense = 0;
  problem.k = arrays.write<std::uint8_t, 2>("k", k, Element::kCode, {"N", "D"},
                                            {num_keys, cache.get().head_dim}, problem.k_stride);
  problem.k_scale =
      arrays.write<float, 1>("k_scale", k_scale, Element::kFloat32, {"N"}, {num_keys}, dense);
  enqueue(arrays.device(), [&] { return dosa_cuda_paged_gather(&problem, stream_of(stream)); });
}

void paged_insert(const DeviceCache& cache, nb::handle k, nb::handle slot_mapping,
                  std::int64_t scale_format, std::uintptr_t stream) {
  DeviceArrays arrays = cache.source();
  const dosa_paged_insert_problem problem =
      read_insert(arrays, cache, k, slot_mapping, scale_format);
  enqueue(arrays.device(), [&] { return dosa_cuda_paged_insert(&problem, stream_of(stream)); });
}

}  // namespace

void bind_device_decode(nb::module_& module) {
  bind_paged<DeviceArrays>(module, "DeviceCache", "DevicePagedProblem");
  module.def("device_paged_workspace_bytes", &paged_workspace_bytes, nb::arg("problem"),
             nb::arg("options"));
  module.def("device_paged_topk", &paged_topk, nb::arg("problem"), nb::arg("options"),
             nb::arg("indices"), nb::arg("scores").none(), nb::arg("workspace"), nb::arg("stream"));
  module.def("device_paged_scores", &paged_scores, nb::arg("problem"), nb::arg("out"),
             nb::arg("stream"));
  module.def("device_paged_gather", &paged_gather, nb::arg("cache"), nb::arg("block_table").none(),
             nb::arg("cu_seq_lens").none(), nb::arg("k"), nb::arg("k_scale"), nb::arg("num_keys"),
             nb::arg("stream"));
  module.def("device_paged_insert", &paged_insert, nb::arg("cache"), nb::arg("k").none(),
             nb::arg("slot_mapping").none(), nb::arg("scale_format"), nb::arg("stream"));
}

}  // namespace dosa::python
