// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "unit/io/raw_file.hpp"

namespace dosa::test {

/// The command beside the test programs' folder, or what DOSA_COMMAND names; empty where it was not
/// built.
inline std::string command_path() {
  const char* named = std::getenv("DOSA_COMMAND");
  const std::filesystem::path path =
      named != nullptr ? std::filesystem::path(named)
                       : std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../dosa";
  return std::filesystem::exists(path) ? std::filesystem::canonical(path).string() : "";
}

struct Outcome {
  int code = -1;  // exit code; -1 where a signal ended it
  std::string out;
  std::string err;

  [[nodiscard]] std::int64_t error_lines() const {
    return std::count(err.begin(), err.end(), '\n');
  }
};

/// Runs the command with `arguments`; `prepare` runs in the child before it starts, `started` in
/// the parent right after.
inline Outcome run_command(const std::vector<std::string>& arguments,
                           const std::function<void()>& prepare = nullptr,
                           const std::function<void(::pid_t)>& started = nullptr) {
  const Folder folder;
  const std::string program = command_path();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const std::string out = folder.file("out");
  const std::string err = folder.file("err");
  const ::pid_t child = ::fork();
  if (child == 0) {
    constexpr int kMode = 0600;
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, kMode), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, kMode), STDERR_FILENO);
    if (prepare) {
      prepare();
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  if (started) {
    started(child);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
}

/// A test of the built command: a folder of its own, and skipped where there is no command.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    if (command_path().empty()) {
      GTEST_SKIP() << "the command was not built; DOSA_COMMAND names another one";
    }
  }

  /// Runs the command and expects success.
  static Outcome succeed(const std::vector<std::string>& arguments) {
    Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome;
  }

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  /// Makes a trace and returns its path.
  std::string generate(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "gen");
    arguments.insert(arguments.end(), {"-o", file(name)});
    succeed(arguments);
    return file(name);
  }

  Folder folder_;
};

}  // namespace dosa::test
