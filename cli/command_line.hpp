// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dosa::cli {

/// The whole command but for its signals: parses, runs, and prints every failure as one line on
/// stderr. argv (argc) begins with the program's name. Returns the exit code; never throws.
[[nodiscard]] int run_command_line(int argc, const char* const* argv);

}  // namespace dosa::cli
