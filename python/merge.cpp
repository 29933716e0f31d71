// SPDX-License-Identifier: Apache-2.0
// dosa_merge.h as Python sees it.
#include <dosa/dosa_merge.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "calls.hpp"
#include "parts.hpp"

namespace dosa::python {
namespace {

/// Lists of scored keys that have been checked; keeps their exporters alive.
class Lists {
 public:
  Lists(nb::handle scores, nb::handle ids) {
    std::int64_t lists = -1;
    std::int64_t rows = -1;
    std::int64_t width = -1;
    std::int64_t ids_stride = 0;
    candidates_.struct_size = sizeof candidates_;
    candidates_.scores =
        inputs_.read<float, 3>("scores", scores, Element::kFloat32, {"L", "Q", "C"},
                               {&lists, &rows, &width}, candidates_.list_stride);
    candidates_.ids = inputs_.read<std::int32_t, 3>("ids", ids, Element::kInt32, {"L", "Q", "C"},
                                                    {&lists, &rows, &width}, ids_stride);
    if (ids_stride != candidates_.list_stride) {
      throw Refusal(Refusal::Kind::kValue, "ids",
                    "lists " + std::to_string(ids_stride) + " elements apart",
                    std::to_string(candidates_.list_stride) + " as in scores");
    }
    candidates_.num_lists = lists;
    candidates_.num_rows = rows;
    candidates_.width = candidates_.row_stride = width;
    candidates_.list_stride = std::max(candidates_.list_stride, width);  // 0 without rows
  }

  [[nodiscard]] const dosa_candidates& get() const { return candidates_; }

 private:
  dosa_candidates candidates_{};
  Inputs inputs_;
};

void merge(const Lists& lists, std::int32_t topk, std::int32_t order, std::int32_t threads,
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
  nb::class_<Lists>(module, "Lists")
      .def(nb::init<nb::handle, nb::handle>(), nb::arg("scores").none(), nb::arg("ids").none())
      .def_prop_ro("num_rows", [](const Lists& self) { return self.get().num_rows; });
  module.def("merge", &merge, nb::arg("lists"), nb::arg("topk"), nb::arg("order"),
             nb::arg("threads"), nb::arg("indices"), nb::arg("scores"));
}

}  // namespace dosa::python
