// SPDX-License-Identifier: Apache-2.0
// The arrays of a call of dosa.h or dosa_cuda.h, checked.
#pragma once

#include <dosa/dosa.h>
#include <nanobind/nanobind.h>

#include <cstdint>

#include "arrays.hpp"

namespace dosa::python {

namespace nb = nanobind;

/// The problem of a call; Source reads its arrays and keeps them alive.
template <typename Source>
class Problem : private Source {
 public:
  Problem(nb::handle q, nb::handle k, nb::handle k_scale, nb::handle weights, nb::handle k_start,
          nb::handle k_end, nb::handle index_offset, nb::handle page_table, std::int64_t topk,
          std::int64_t page_size) {
    std::int64_t num_queries = -1;
    std::int64_t num_keys = -1;
    std::int64_t num_heads = -1;
    std::int64_t head_dim = -1;
    std::int64_t dense = 0;
    problem_.struct_size = sizeof problem_;
    problem_.q = this->template read<std::uint8_t, 3>("q", q, Element::kCode, {"Q", "H", "D"},
                                                      {&num_queries, &num_heads, &head_dim},
                                                      problem_.q_stride);
    problem_.k = this->template read<std::uint8_t, 2>("k", k, Element::kCode, {"N", "D"},
                                                      {&num_keys, &head_dim}, problem_.k_stride);
    problem_.k_scale = this->template read<float, 1>("k_scale", k_scale, Element::kFloat32, {"N"},
                                                     {&num_keys}, dense);
    problem_.weights =
        this->template read<float, 2>("weights", weights, Element::kFloat32, {"Q", "H"},
                                      {&num_queries, &num_heads}, problem_.weights_stride);
    problem_.num_queries = num_queries;
    problem_.num_keys = num_keys;
    problem_.num_heads = narrow("H", num_heads);
    problem_.head_dim = narrow("D", head_dim);
    problem_.topk = narrow("topk", topk);
    problem_.page_size = narrow("page_size", page_size);
    const auto per_row = [&](const char* name, nb::handle object) -> const std::int32_t* {
      if (object.is_none()) return nullptr;
      return this->template read<std::int32_t, 1>(name, object, Element::kInt32, {"Q"},
                                                  {&num_queries}, dense);
    };
    problem_.k_start = per_row("k_start", k_start);
    problem_.k_end = per_row("k_end", k_end);
    problem_.index_offset = per_row("index_offset", index_offset);
    if (!page_table.is_none()) read_page_table(page_table, num_queries);
  }

  [[nodiscard]] const dosa_problem& get() const { return problem_; }
  [[nodiscard]] const Source& source() const { return *this; }

 private:
  /// (pages) for all rows, or (Q, pages).
  void read_page_table(nb::handle table, std::int64_t num_queries) {
    const char* name = "page_table";
    std::int64_t pages = -1;
    std::int64_t stride = 0;
    if (this->rank(name, table) == 1) {
      problem_.page_table = this->template read<std::int32_t, 1>(name, table, Element::kInt32,
                                                                 {"pages"}, {&pages}, stride);
      stride = 0;
    } else {
      problem_.page_table = this->template read<std::int32_t, 2>(
          name, table, Element::kInt32, {"Q", "pages"}, {&num_queries, &pages}, stride);
    }
    problem_.page_table_stride = stride;
    problem_.page_table_pages = pages;
  }

  dosa_problem problem_{};
};

/// Adds the class of a problem to the module.
template <typename Type>
void bind_problem(nb::module_& module, const char* name) {
  nb::class_<Type>(module, name)
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle,
                    nb::handle, nb::handle, std::int64_t, std::int64_t>(),
           nb::arg("q").none(), nb::arg("k").none(), nb::arg("k_scale").none(),
           nb::arg("weights").none(), nb::arg("k_start").none(), nb::arg("k_end").none(),
           nb::arg("index_offset").none(), nb::arg("page_table").none(), nb::arg("topk"),
           nb::arg("page_size"))
      .def_prop_ro("num_queries", [](const Type& self) { return self.get().num_queries; })
      .def_prop_ro("num_keys", [](const Type& self) { return self.get().num_keys; })
      .def_prop_ro("num_heads", [](const Type& self) { return self.get().num_heads; })
      .def_prop_ro("head_dim", [](const Type& self) { return self.get().head_dim; });
}

}  // namespace dosa::python
