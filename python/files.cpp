// SPDX-License-Identifier: Apache-2.0
// Files: safetensors as the command reads and writes them. What is read is a view of the mapped
// file, kept alive by the arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "arrays.hpp"
#include "io/error.hpp"
#include "io/output_file.hpp"
#include "io/trace.hpp"
#include "parts.hpp"

namespace nb = nanobind;

namespace dosa::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;

/// (name, dtype, shape, bytes) as files.py takes it.
nb::tuple entry(const std::string& name, std::string_view dtype,
                const std::vector<std::int64_t>& shape, const void* data, std::size_t size,
                nb::handle owner) {
  return nb::make_tuple(name, std::string(dtype), nb::tuple(nb::cast(shape)),
                        nb::cast(Bytes(static_cast<const std::uint8_t*>(data), {size}, owner)));
}

nb::list file_entries(nb::pointer_and_handle<io::SafeTensors> self) {
  nb::list list;
  for (const io::Tensor& tensor : self.p->tensors()) {
    list.append(entry(tensor.name, io::dtype_name(tensor.dtype), tensor.shape, tensor.data.data(),
                      tensor.data.size(), self.h));
  }
  return list;
}

/// q, k, k_scale, weights, k_start, k_end: aligned, in place where the file has them so.
nb::list trace_entries(nb::pointer_and_handle<io::Trace> self) {
  const dosa_problem& problem = self.p->problem();
  const std::int64_t rows = problem.num_queries;
  const std::int64_t keys = problem.num_keys;
  const std::int64_t heads = problem.num_heads;
  const std::int64_t dim = problem.head_dim;
  nb::list list;
  const auto add = [&](const char* name, const char* dtype, std::vector<std::int64_t> shape,
                       const auto* data) {
    std::size_t size = sizeof *data;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    list.append(entry(name, dtype, shape, data, size, self.h));
  };
  add("q", "F8_E4M3", {rows, heads, dim}, problem.q);
  add("k", "F8_E4M3", {keys, dim}, problem.k);
  add("k_scale", "F32", {keys}, problem.k_scale);
  add("weights", "F32", {rows, heads}, problem.weights);
  add("k_start", "I32", {rows}, problem.k_start);
  add("k_end", "I32", {rows}, problem.k_end);
  return list;
}

/// Writes entries of (name, dtype, shape, bytes); the bytes are contiguous uint8 arrays.
void write_file(const std::string& path, const nb::list& entries, const io::Metadata& metadata) {
  using View = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  std::vector<View> views;
  std::vector<io::Tensor> tensors;
  for (const nb::handle item : entries) {
    const auto tuple = nb::cast<nb::tuple>(item);
    io::Tensor& tensor = tensors.emplace_back();
    tensor.name = nb::cast<std::string>(tuple[0]);
    const auto type = nb::cast<std::string>(tuple[1]);
    const auto dtype = io::find_dtype(type);
    if (!dtype) {
      throw Refusal(Refusal::Kind::kType, tensor.name, "dtype " + type, "a safetensors dtype");
    }
    tensor.dtype = *dtype;
    tensor.shape = nb::cast<std::vector<std::int64_t>>(tuple[2]);
    const View& view = views.emplace_back(nb::cast<View>(tuple[3]));
    tensor.data = {reinterpret_cast<const std::byte*>(view.data()), view.size()};
  }
  const nb::gil_scoped_release release;
  io::OutputFile output(path);
  output.commit(std::move(tensors), metadata);
}

}  // namespace

void bind_files(nb::module_& module) {
  nb::class_<io::SafeTensors>(module, "File")
      .def_prop_ro("metadata", [](const io::SafeTensors& self) { return self.metadata(); })
      .def("entries", &file_entries);
  nb::class_<io::Trace>(module, "Trace")
      .def_prop_ro("metadata", [](const io::Trace& self) { return self.file().metadata(); })
      .def("entries", &trace_entries);
  module.def("open_file", &io::SafeTensors::open, nb::arg("path"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("open_trace", &io::Trace::open, nb::arg("path"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("write_file", &write_file, nb::arg("path"), nb::arg("entries"), nb::arg("metadata"));
}

}  // namespace dosa::python
