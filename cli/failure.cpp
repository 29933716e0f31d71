// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"

#include <fmt/format.h>

namespace dosa::cli {

Failure::Failure(std::string_view what, std::string_view found, std::string_view expected)
    : Failure(fmt::format("{}: found {}, expected {}", what, found, expected)) {}

void check(dosa_status status) {
  if (status == DOSA_OK) {
    return;
  }
  const std::string detail = dosa_last_error();
  throw Failure(detail.empty() ? dosa_status_text(status) : detail);
}

}  // namespace dosa::cli
