// SPDX-License-Identifier: Apache-2.0
#include "io/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "unit/io/raw_file.hpp"

namespace dosa::io {
namespace {

namespace fs = std::filesystem;

std::vector<Tensor> tensors_of(const std::vector<float>& values) {
  return {{"v",
           DType::kF32,
           {static_cast<std::int64_t>(values.size())},
           std::as_bytes(std::span(values))}};
}

std::string refusal_of(const std::string& path) {
  try {
    const OutputFile output(path);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(OutputFile, AppearsCompleteOrNotAtAll) {
  const test::Folder folder;
  const std::vector<float> values = {1, 2};
  {
    OutputFile output(folder.file("out"));
    output.reserve(1 << 20);
    EXPECT_FALSE(fs::exists(folder.file("out")));
    EXPECT_EQ(folder.num_files(), 1U);  // the hidden one
    output.commit(tensors_of(values), {});
    EXPECT_EQ(folder.num_files(), 1U);
  }
  const SafeTensors file = SafeTensors::open(folder.file("out"));
  EXPECT_EQ(file.find("v")->shape, std::vector<std::int64_t>{2});
  { const OutputFile abandoned(folder.file("other")); }
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(OutputFile, LeavesTheOldFileWhenAbandoned) {
  const test::Folder folder;
  test::write_text(folder.file("out"), "old");
  { const OutputFile abandoned(folder.file("out")); }
  EXPECT_EQ(test::read_text(folder.file("out")), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(OutputFile, KeepsPermissionsAndFollowsLinks) {
  const test::Folder folder;
  test::write_text(folder.file("real"), "old");
  fs::permissions(folder.file("real"), fs::perms{0640});
  fs::create_symlink(folder.file("real"), folder.file("link"));
  OutputFile output(folder.file("link"));
  output.commit({}, {});
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(test::read_text(folder.file("real")).substr(8), "{}      ");
  EXPECT_EQ(fs::status(folder.file("real")).permissions(), fs::perms{0640});
}

TEST(OutputFile, RefusesBeforeAnythingIsComputed) {
  const test::Folder folder;
  fs::create_symlink(folder.file("nowhere"), folder.file("dangling"));
  EXPECT_NE(refusal_of(folder.file("no/such/folder")).find("found No such file"),
            std::string::npos);
  EXPECT_NE(refusal_of(folder.file(".")).find("found a directory"), std::string::npos);
  EXPECT_NE(refusal_of(folder.file("dangling")).find("expected a link to a file"),
            std::string::npos);
  EXPECT_NE(refusal_of("/dev/full").find("found a special file"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_NE(refusal_of(""), "");
  EXPECT_NE(refusal_of(folder.file(std::string(300, 'x'))).find("found File name too long"),
            std::string::npos);
  if (::geteuid() != 0) {
    fs::permissions(folder.file("."), fs::perms{0500});
    EXPECT_NE(refusal_of(folder.file("out")).find("found Permission denied"), std::string::npos);
    fs::permissions(folder.file("."), fs::perms{0700});
  }
  EXPECT_EQ(folder.num_files(), 1U);
}

/// Runs `body` in a child process, whose exit status is returned.
template <typename Body>
int in_child(Body body) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(OutputFile, FullDiskLeavesNothing) {
  const test::Folder folder;
  test::write_text(folder.file("out"), "old");
  for (const bool reserve_first : {true, false}) {
    const int status = in_child([&] {
      const ::rlimit limit{4096, 4096};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      remove_uncommitted_on_signals();
      const std::vector<float> values(1 << 20);
      try {
        OutputFile output(folder.file("out"));
        if (reserve_first) {
          output.reserve(4 << 20);
        }
        output.commit(tensors_of(values), {});
      } catch (const Error& error) {
        const std::string expected = reserve_first ? "room for" : "a complete write";
        const std::string line = error.what();
        const bool named =
            line.find("found File too large, expected " + expected) != std::string::npos;
        ::_exit(named ? 7 : 8);
      }
    });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7) << reserve_first;
    EXPECT_EQ(test::read_text(folder.file("out")), "old");
    EXPECT_EQ(folder.num_files(), 1U);
  }
}

TEST(OutputFile, SignalsLeaveNothing) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    const test::Folder folder;
    const int status = in_child([&] {
      std::signal(signal_number, SIG_DFL);
      remove_uncommitted_on_signals();
      const OutputFile output(folder.file("out"));
      if (folder.num_files() != 1) {
        ::_exit(9);
      }
      ::raise(signal_number);
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << signal_number;
    EXPECT_EQ(WTERMSIG(status), signal_number);
    EXPECT_EQ(folder.num_files(), 0U);
  }
}

TEST(OutputFile, IgnoredSignalsStayIgnored) {
  const int status = in_child([] {
    std::signal(SIGINT, SIG_IGN);
    remove_uncommitted_on_signals();
    ::raise(SIGINT);
  });
  EXPECT_TRUE(WIFEXITED(status));
}

TEST(OutputFile, TwoWritersOfOneNameDoNotMix) {
  const test::Folder folder;
  std::vector<std::thread> writers;
  for (const std::size_t size : {1000U, 100000U}) {
    writers.emplace_back([&folder, size] {
      const std::vector<float> values(size);
      OutputFile output(folder.file("out"));
      output.commit(tensors_of(values), {});
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  EXPECT_EQ(SafeTensors::open(folder.file("out")).tensors().size(), 1U);
  EXPECT_EQ(folder.num_files(), 1U);
}

}  // namespace
}  // namespace dosa::io
