// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace dosa::cli {

/// What the command line asks for; returns the exit code.
using Action = std::function<int()>;

// Each declares one command below `app` and, when it is the one on the command line, sets `chosen`.
// A new command is a file of its own, a line here and a line in command_line.cpp.
void add_run(CLI::App& app, Action& chosen);
void add_verify(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);
void add_gen(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_study(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_probe(CLI::App& app, Action& chosen);

}  // namespace dosa::cli
