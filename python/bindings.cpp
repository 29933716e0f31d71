// SPDX-License-Identifier: Apache-2.0
// dosa._core: the C interface as Python sees it. This file: options, errors, the module.
#include <dosa/dosa.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <string>

#include "arrays.hpp"
#include "io/error.hpp"
#include "parts.hpp"

namespace nb = nanobind;

namespace dosa::python {
namespace {

template <std::int32_t dosa_options::*Field>
void def_option(nb::class_<Options>& options, const char* name) {
  options.def_prop_rw(
      name, [](const Options& self) { return self.value.*Field; },
      [name](Options& self, std::int64_t value) { self.value.*Field = narrow(name, value); });
}

const char* error_class(const Refusal& refusal) {
  return refusal.kind() == Refusal::Kind::kType ? "ArgumentTypeError" : "ArgumentError";
}

const char* error_class(const Failure& failure) {
  switch (failure.status) {
    case DOSA_INVALID_ARGUMENT:
    case DOSA_WORKSPACE_TOO_SMALL:
      return "ArgumentError";
    case DOSA_UNSUPPORTED:
      return "UnsupportedError";
    case DOSA_CERTIFICATE:
      return "CertificateError";
    default:
      return "InternalError";
  }
}

/// The names of the C interface as the arguments are called in Python.
std::string python_names(std::string message) {
  for (const std::string prefix : {"problem.", "options.", "output.", "cache.", "candidates."}) {
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
  }
  const std::string limit = "workspace_limit";
  if (message.starts_with(limit)) message.replace(0, limit.size(), "workspace_mib");
  return message;
}

void set_error(const char* class_name, const std::string& message) {
  const nb::object type = nb::module_::import_("dosa._errors").attr(class_name);
  PyErr_SetString(type.ptr(), message.c_str());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Refusal& refusal) {
    set_error(error_class(refusal), refusal.what());
  } catch (const Failure& failure) {
    set_error(error_class(failure), python_names(failure.message));
  } catch (const io::Error& error) {
    set_error("FileError", error.what());
  }
}

void bind_options(nb::module_& module) {
  nb::class_<Options> options(module, "Options");
  options.def(nb::init<>());
  def_option<&dosa_options::mode>(options, "mode");
  def_option<&dosa_options::threshold>(options, "threshold");
  def_option<&dosa_options::index_form>(options, "index_form");
  def_option<&dosa_options::order>(options, "order");
  def_option<&dosa_options::heads>(options, "heads");
  def_option<&dosa_options::threads>(options, "threads");
  def_option<&dosa_options::forced_first>(options, "forced_first");
  def_option<&dosa_options::forced_last>(options, "forced_last");
  def_option<&dosa_options::retain>(options, "retain");
  def_option<&dosa_options::projection>(options, "projection");
  def_option<&dosa_options::allowance>(options, "allowance");
  def_option<&dosa_options::allowance_groups>(options, "allowance_groups");
  def_option<&dosa_options::aggregate>(options, "aggregate");
  def_option<&dosa_options::statistics>(options, "statistics");
  def_option<&dosa_options::score_model>(options, "score_model");
  options.def_prop_rw(
      "workspace_mib", [](const Options& self) { return self.value.workspace_limit >> 20U; },
      [](Options& self, std::uint32_t mib) {
        self.value.workspace_limit = std::uint64_t{mib} << 20U;
        self.limited = true;
      });
}

}  // namespace
}  // namespace dosa::python

NB_MODULE(_core, module) {
  using namespace dosa::python;
  nb::register_exception_translator(translate, nullptr);
  module.attr("ROW_STATS_BYTES") = sizeof(dosa_row_stats);
  module.def("version", &dosa_version);
  module.def("simd_target", &dosa_simd_target);
  bind_options(module);
  bind_calls(module);
  bind_decode(module);
  bind_files(module);
  bind_merge(module);
#ifdef DOSA_CUDA_ENGINE
  module.attr("HAS_DEVICE") = true;
  bind_device(module);
#else
  module.attr("HAS_DEVICE") = false;
#endif
}
