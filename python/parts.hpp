// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <string>

namespace nanobind {
class module_;
}

namespace dosa::python {

/// A status of the library that stopped a call; becomes the exception of that status.
struct Failure {
  dosa_status status;
  std::string message;
};

/// Throws: Failure where `status` is not DOSA_OK.
inline void check(dosa_status status) {
  if (status != DOSA_OK) throw Failure{status, dosa_last_error()};
}

/// The options of a call; progress is not among them.
struct Options {
  Options() { check(dosa_options_init(&value, sizeof value)); }
  dosa_options value;
  bool limited = false;  // the caller has set workspace_limit
};

/// Each adds a part of dosa._core.
void bind_calls(nanobind::module_& module);
void bind_decode(nanobind::module_& module);
void bind_device(nanobind::module_& module);
void bind_files(nanobind::module_& module);
void bind_merge(nanobind::module_& module);

}  // namespace dosa::python
