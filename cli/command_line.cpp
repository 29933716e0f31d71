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

#include "commands.hpp"
#include "failure.hpp"
#include "io/error.hpp"
#include "parse_error.hpp"

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

void describe(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("dosa ") + dosa_version());
  app.get_formatter()->column_width(36);
  app.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
}

/// Runs what was chosen; what it printed must have arrived.
int finish(const Action& chosen) {
  const int code = chosen();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const std::string found = io::system_text(errno);
    return report(("standard output: found " + found + ", expected a write").c_str());
  }
  return code;
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
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) {
      return report(parse_line(app, error).c_str());
    }
    return finish([&] { return app.exit(error); });  // --help and --version
  }
  return finish(chosen);
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
