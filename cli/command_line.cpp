// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <dosa/dosa.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "commands.hpp"
#include "failure.hpp"
#include "io/error.hpp"

namespace dosa::cli {
namespace {

/// One line, whatever an exception says. It allocates nothing, since memory may be what ran out.
int report(const char* line) noexcept {
  const char* lead = "dosa: ";
  for (const char* end = std::strchr(line, '\n'); end != nullptr; end = std::strchr(line, '\n')) {
    std::fprintf(stderr, "%s%.*s", lead, static_cast<int>(end - line), line);
    lead = " ";
    line = end + 1;
  }
  std::fprintf(stderr, "%s%s\n", lead, line);
  return kMisuse;
}

/// "dosa gen dial", as far as the command line got.
std::string command_path(const CLI::App& app) {
  std::string path = "dosa";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += ' ' + at->get_name();
  }
  return path;
}

/// The innermost command that was named, or the program.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
  }
  return *at;
}

std::string missing_command(const CLI::App& app, const std::string& help) {
  const std::vector<std::string> rest = app.remaining(true);
  const CLI::App& parent = innermost(app);
  std::string names;
  for (const CLI::App* command : parent.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return "arguments: found " + (rest.empty() ? "no command" : io::printable(rest.front())) +
         ", expected one of " + names + ' ' + help;
}

/// A parse error as one line in the form of all others.
std::string parse_line(const CLI::App& app, const CLI::ParseError& error) {
  const std::string help = "(see '" + command_path(app) + " --help')";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> rest = app.remaining(true);
    const std::string found = rest.empty() ? "an unknown argument" : io::printable(rest.front());
    return "arguments: found " + found + ", expected only what is listed " + help;
  }
  const std::string what = error.what();
  if (what.find("subcommand") != std::string::npos) {
    return missing_command(app, help);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::size_t end = what.find(" is required");
    const std::string missing = end == std::string::npos ? "argument" : what.substr(0, end);
    return "arguments: found no " + missing + ", expected one " + help;
  }
  return "arguments: found a wrong use (" + what + "), expected what is listed " + help;
}

void describe(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("dosa ") + dosa_version());
  app.get_formatter()->column_width(36);
  app.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
}

int run_unguarded(int argc, const char* const* argv) {
  CLI::App app(
      "Exact Top-K for the DeepSeek-Sparse-Attention lightning indexer: the K best keys of every\n"
      "query, without scoring every key in full.",
      "dosa");
  describe(app);
  Action chosen;
  add_run(app, chosen);
  add_verify(app, chosen);
  add_explain(app, chosen);
  add_info(app, chosen);
  add_gen(app, chosen);
  add_doctor(app, chosen);
  add_study(app, chosen);
  add_bench(app, chosen);
  add_probe(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      return app.exit(error);  // --help and --version
    }
    return report(parse_line(app, error).c_str());
  }
  const int code = chosen();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const std::string found = io::system_text(errno);
    return report(("standard output: found " + found + ", expected a write").c_str());
  }
  return code;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  try {
    return run_unguarded(argc, argv);
  } catch (const std::bad_alloc&) {
    return report("memory: found too little, expected room for the tensors and the results");
  } catch (const std::exception& error) {
    return report(error.what());
  }
}

}  // namespace dosa::cli
