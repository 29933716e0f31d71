// SPDX-License-Identifier: Apache-2.0
// What the calls on a device share: options, the caller's workspace, running on the right device.
#pragma once

#include <dosa/dosa_cuda.h>
#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "device_arrays.hpp"
#include "device_memory.hpp"

namespace dosa::python {

/// The options with the device's own limit of the workspace where the caller gave none.
inline dosa_options device_options(const Options& options) {
  dosa_options call = options.value;
  if (!options.limited) {
    dosa_options defaults{};
    check(dosa_cuda_options_init(&defaults, sizeof defaults));
    call.workspace_limit = defaults.workspace_limit;
  }
  return call;
}

/// Runs `body`, which returns a status, on `device` and without the interpreter.
template <typename Body>
void enqueue(int device, Body body) {
  dosa_status status = DOSA_OK;
  std::string message;
  {
    const nb::gil_scoped_release release;
    const DeviceGuard guard(device);
    status = body();
    if (status != DOSA_OK) message = dosa_last_error();
  }
  if (status != DOSA_OK) throw Failure{status, message};
}

/// The caller's memory for one call.
struct Scratch {
  Scratch(DeviceArrays& arrays, nb::handle object) {
    std::int64_t stride = 0;
    const DeviceView view("workspace", object);
    bytes = view.get().shape.empty() ? 0 : static_cast<std::size_t>(view.get().shape[0]);
    data =
        arrays.write<std::uint8_t, 1>("workspace", object, Element::kCode, {"bytes"}, {-1}, stride);
  }
  std::uint8_t* data;
  std::size_t bytes;
};

/// Ids (rows, K), and scores where asked for, as a selection writes them; errors call the rows
/// `letter`.
inline dosa_output selection_output(DeviceArrays& arrays, nb::handle indices, nb::handle scores,
                                    const char* letter, std::array<std::int64_t, 2> shape) {
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = arrays.write<std::int32_t, 2>("indices", indices, Element::kInt32, {letter, "K"},
                                                 shape, output.indices_stride);
  output.scores = arrays.write<float, 2>("scores", scores, Element::kFloat32, {letter, "K"}, shape,
                                         output.scores_stride);
  return output;
}

/// Adds the calls on paged caches to dosa._core.
void bind_device_decode(nb::module_& module);

}  // namespace dosa::python
