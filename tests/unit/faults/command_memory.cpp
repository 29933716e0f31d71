// SPDX-License-Identifier: Apache-2.0
//
// Every allocation of the command fails once, for each of its commands: it ends with exit code 2
// and one line, and leaves no file that is not complete; or it can do without, and the result is
// the right one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "failing_memory.hpp"
#include "io/gen_exact.hpp"
#include "io/output_file.hpp"
#include "oracle/properties.hpp"
#include "unit/io/raw_file.hpp"

namespace dosa::test {
namespace {

struct Ended {
  int code = -1;  // -1: by a signal
  std::string out, err;
  bool failed = false;  // whether an allocation failed before the end
};

/// The command in a child of this process, with its n-th allocation failing; negative: none.
Ended run_failing(const std::vector<std::string>& words, std::int64_t n, const Folder& folder) {
  constexpr int kFailed = 64;  // added to the exit code
  std::vector<const char*> argv = {"dosa"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const std::string out = folder.file(".out");
  const std::string err = folder.file(".err");
  std::fflush(nullptr);
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(1);
    if (std::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(1);
    int code = 0;
    bool failed = false;
    {
      const FailAllocation fail(n);
      code = cli::run_command_line(static_cast<int>(argv.size()), argv.data());
      failed = FailAllocation::failed();
    }
    std::fflush(nullptr);
    ::_exit(code + (failed ? kFailed : 0));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Ended ended{-1, read_text(out), read_text(err), true};
  if (!WIFEXITED(status)) return ended;
  ended.failed = WEXITSTATUS(status) >= kFailed;
  ended.code = WEXITSTATUS(status) - (ended.failed ? kFailed : 0);
  return ended;
}

/// The sites to try: all of the first ones, then ever sparser, unless a nightly run asks for all.
std::int64_t next_site(std::int64_t n) {
  constexpr std::int64_t kDense = 60;
  if (oracle::test_scale() > 1 || n < kDense) return n + 1;
  return n + 1 + n / 12;
}

class CommandMemory : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  void SetUp() override {
    io::ExactShape shape;
    shape.num_queries = 3;
    shape.num_keys = 400;
    shape.num_heads = 4;
    shape.head_dim = 32;
    const io::TraceData data = io::make_int(shape);
    io::OutputFile file(folder_.file("trace"));
    file.commit(data.tensors(), {});
  }
  Folder folder_;
};

TEST_P(CommandMemory, EveryAllocationMayFail) {
  std::vector<std::string> words = GetParam();
  for (std::string& word : words) {
    if (word == "TRACE") word = folder_.file("trace");
    if (word == "OUT") word = folder_.file("out");
  }
  const Ended right = run_failing(words, -1, folder_);
  ASSERT_EQ(right.code, 0) << right.err;
  const std::string written = read_text(folder_.file("out"));
  std::filesystem::remove(folder_.file("out"));
  std::int64_t sites = 0;
  std::int64_t refused = 0;
  for (std::int64_t n = 0;; n = next_site(n)) {
    const Ended ended = run_failing(words, n, folder_);
    if (!ended.failed) break;  // all of them were tried
    ++sites;
    if (ended.code == 0) {  // it could do without
      ASSERT_EQ(read_text(folder_.file("out")), written) << n;
      std::filesystem::remove(folder_.file("out"));
      continue;
    }
    ++refused;
    ASSERT_EQ(ended.code, 2) << "allocation " << n << ": " << ended.err;
    ASSERT_EQ(ended.err.rfind("dosa: ", 0), 0U) << n << ": " << ended.err;
    ASSERT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << n << ": " << ended.err;
    // What fails behind the last byte of the result, such as the report, leaves it complete.
    const std::string left = read_text(folder_.file("out"));
    ASSERT_TRUE(left.empty() || left == written) << n;
    std::filesystem::remove(folder_.file("out"));
    ASSERT_EQ(folder_.num_files(), 3U) << "allocation " << n << " left a file";  // and the two logs
  }
  EXPECT_GT(refused, 20);
  RecordProperty("sites", std::to_string(sites));
}

// Without --json: values of the JSON library allocate when they are destroyed, so that a report for
// which memory runs out may end the process. It is the last thing that a command does.
using Words = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Commands, CommandMemory,
    ::testing::Values(Words{"run", "TRACE", "-k", "9", "--threads", "1", "--out", "OUT",
                            "--scores"},
                      Words{"verify", "TRACE", "-k", "9", "--threads", "1"},
                      Words{"explain", "TRACE", "--row", "1", "-k", "9"}, Words{"info", "TRACE"},
                      Words{"gen", "int", "--queries", "3", "--keys", "50", "-o", "OUT"}),
    [](const auto& words) { return words.param.front(); });

}  // namespace
}  // namespace dosa::test
