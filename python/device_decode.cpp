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
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices =
      arrays.write<std::int32_t, 2>("indices", indices, Element::kInt32, {"rows", "K"},
                                    {step.rows(), problem.topk}, output.indices_stride);
  output.scores = arrays.write<float, 2>("scores", scores, Element::kFloat32, {"rows", "K"},
                                         {step.rows(), problem.topk}, output.scores_stride);
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
  dosa_paged_gather_problem problem{};
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  std::int64_t batch = -1;
  std::int64_t dense = 0;
  problem.block_table_blocks = -1;  // any
  problem.block_table = arrays.read<std::int32_t, 2>(
      "block_table", block_table, Element::kInt32, {"B", "blocks"},
      {&batch, &problem.block_table_blocks}, problem.block_table_stride);
  problem.batch = batch;
  std::int64_t ends = batch + 1;
  problem.cu_seq_lens = arrays.read<std::int32_t, 1>("cu_seq_lens", cu_seq_lens, Element::kInt32,
                                                     {"B + 1"}, {&ends}, dense);
  problem.num_keys = num_keys;
  problem.k = arrays.write<std::uint8_t, 2>("k", k, Element::kCode, {"N", "D"},
                                            {num_keys, cache.get().head_dim}, problem.k_stride);
  problem.k_scale =
      arrays.write<float, 1>("k_scale", k_scale, Element::kFloat32, {"N"}, {num_keys}, dense);
  enqueue(arrays.device(), [&] { return dosa_cuda_paged_gather(&problem, stream_of(stream)); });
}

void paged_insert(const DeviceCache& cache, nb::handle k, nb::handle slot_mapping,
                  std::int64_t scale_format, std::uintptr_t stream) {
  DeviceArrays arrays = cache.source();
  dosa_paged_insert_problem problem{};
  std::int64_t dense = 0;
  std::int64_t tokens = -1;
  std::int64_t dim = cache.get().head_dim;
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  problem.k = arrays.read<std::uint16_t, 2>("k", k, Element::kBfloat16, {"T", "D"}, {&tokens, &dim},
                                            problem.k_stride);
  problem.slot_mapping = arrays.read<std::int64_t, 1>("slot_mapping", slot_mapping, Element::kInt64,
                                                      {"T"}, {&tokens}, dense);
  problem.num_tokens = tokens;
  problem.scale_format = narrow("scale_format", scale_format);
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
