// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dosa::cli {

/// A parse error of the command line as one line in the form of all others: what, found, expected.
[[nodiscard]] std::string parse_line(const CLI::App& app, const CLI::ParseError& error);

}  // namespace dosa::cli
