// SPDX-License-Identifier: Apache-2.0
// dosa_merge.h as Python sees it.
#include <dosa/dosa_merge.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "calls.hpp"
#include "merge_lists.hpp"
#include "parts.hpp"

namespace dosa::python {
namespace {

using HostLists = Lists<Inputs>;

void merge(const HostLists& lists, std::int32_t topk, std::int32_t order, std::int32_t threads,
           nb::handle indices, nb::handle scores) {
  dosa_candidates call = lists.get();
  call.topk = topk;
  call.order = order;
  call.threads = threads;
  const Target<std::int32_t, 2> ids("indices", indices, Element::kInt32, {"Q", "K"},
                                    {call.num_rows, topk});
  const Target<float, 2> values("out", scores, Element::kFloat32, {"Q", "K"},
                                {call.num_rows, topk});
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = topk;
  output.scores = values.data();
  output.scores_stride = topk;
  std::size_t bytes = 0;
  check(dosa_merge_workspace_bytes(&call, &bytes));
  std::vector<std::byte> workspace(bytes);
  std::string message;
  const dosa_status status = run({}, nb::none(), message, [&](const dosa_options&) {
    return dosa_merge_topk(&call, &output, workspace.data(), bytes);
  });
  if (status != DOSA_OK) throw Failure{status, message};
}

}  // namespace

void bind_merge(nb::module_& module) {
  bind_lists<Inputs>(module, "Lists");
  module.def("merge", &merge, nb::arg("lists"), nb::arg("topk"), nb::arg("order"),
             nb::arg("threads"), nb::arg("indices"), nb::arg("scores"));
}

}  // namespace dosa::python
