// SPDX-License-Identifier: Apache-2.0
#include "parse_error.hpp"

#include <vector>

#include "io/error.hpp"

namespace dosa::cli {
namespace {

/// The innermost command that was named, or the program.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
  }
  return *at;
}

/// "dosa gen dial", as far as the command line got.
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += ' ' + at->get_name();
  }
  return path;
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

/// An option that was given too often or without its value. CLI11 says which only in its text:
/// "--topk: At Most 1 required but received 2", "--topk: 1 required TEXT missing".
std::string wrong_count(const std::string& what, const std::string& help) {
  const std::string name = what.substr(0, what.find(':'));
  constexpr const char* kReceived = "but received ";
  const std::size_t received = what.rfind(kReceived);
  const std::string found = received == std::string::npos
                                ? "no value"
                                : what.substr(received + std::string(kReceived).size()) + " values";
  return name + ": found " + found + ", expected one " + help;
}

}  // namespace

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
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return wrong_count(what, help);
  }
  return "arguments: found a wrong use (" + what + "), expected what is listed " + help;
}

}  // namespace dosa::cli
