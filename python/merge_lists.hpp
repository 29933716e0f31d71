// SPDX-License-Identifier: Apache-2.0
// The lists of a merge, on the host or on a device, checked.
#pragma once

#include <dosa/dosa_merge.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "arrays.hpp"

namespace dosa::python {

namespace nb = nanobind;

/// Lists of scored keys, (L, Q, C) both; Source reads them and keeps them alive.
template <typename Source>
class Lists : private Source {
 public:
  Lists(nb::handle scores, nb::handle ids) {
    std::int64_t lists = -1;
    std::int64_t rows = -1;
    std::int64_t width = -1;
    std::int64_t ids_stride = 0;
    candidates_.struct_size = sizeof candidates_;
    candidates_.scores =
        this->template read<float, 3>("scores", scores, Element::kFloat32, {"L", "Q", "C"},
                                      {&lists, &rows, &width}, candidates_.list_stride);
    candidates_.ids = this->template read<std::int32_t, 3>(
        "ids", ids, Element::kInt32, {"L", "Q", "C"}, {&lists, &rows, &width}, ids_stride);
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
  [[nodiscard]] const Source& source() const { return *this; }

 private:
  dosa_candidates candidates_{};
};

/// Adds the class of lists to the module.
template <typename Source>
void bind_lists(nb::module_& module, const char* name) {
  using Type = Lists<Source>;
  nb::class_<Type>(module, name)
      .def(nb::init<nb::handle, nb::handle>(), nb::arg("scores").none(), nb::arg("ids").none())
      .def_prop_ro("num_rows", [](const Type& self) { return self.get().num_rows; });
}

}  // namespace dosa::python
