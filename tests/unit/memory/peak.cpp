// SPDX-License-Identifier: Apache-2.0
//
// Peak memory of a call at serving size, beyond its inputs and outputs. Each call runs in a process
// of its own, since the kernel keeps one high-water mark per process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "dosa/dosa.h"
#include "io/gen_exact.hpp"
#include "io/gen_model.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DOSA_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DOSA_SANITIZED 1
#endif
#endif

namespace dosa {
namespace {

constexpr std::int64_t kQueries = 4096;
constexpr std::int64_t kKeys = 131072;
constexpr int kTopk = 2048;
constexpr std::int64_t kMib = std::int64_t{1} << 20;

/// A value of /proc/self/status in bytes; -1 where there is none.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return -1;
}

struct Report {
  int status = -1;         // dosa_status
  std::int64_t bytes = 0;  // workspace
  std::int64_t peak = 0;   // of resident memory, beyond what was resident before
  std::int64_t wrong = 0;  // rows that do not begin with a valid id or end with one
};

/// One call, its output already resident, its workspace not.
Report call(const io::TraceData& data, const dosa_options& options) {
  dosa_problem problem = data.problem();
  problem.topk = kTopk;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.num_queries) * kTopk, -2);
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = kTopk;

  Report report;
  std::ofstream("/proc/self/clear_refs") << "5";  // the high-water mark starts again from here
  const std::int64_t before = status_bytes("VmRSS");
  std::size_t bytes = 0;
  report.status = dosa_workspace_bytes(&problem, &options, &bytes);
  if (report.status != DOSA_OK) return report;
  void* workspace = std::malloc(bytes);
  report.status = dosa_topk(&problem, &options, &output, workspace, bytes);
  report.peak = status_bytes("VmHWM") - before;
  report.bytes = static_cast<std::int64_t>(bytes);
  std::free(workspace);
  for (std::int64_t row = 0; row < data.num_queries; ++row) {
    const std::int32_t first = ids[static_cast<std::size_t>(row * kTopk)];
    const std::int32_t last = ids[static_cast<std::size_t>(row * kTopk + kTopk - 1)];
    if (first < 0 || last <= first || last >= data.num_keys) ++report.wrong;
  }
  return report;
}

/// call() in a process of its own; this one never starts a thread.
Report call_apart(const io::TraceData& data, const dosa_options& options) {
  int ends[2];
  Report report;
  if (pipe(ends) != 0) return report;
  const pid_t child = fork();
  if (child == 0) {
    const Report result = call(data, options);
    const bool sent = write(ends[1], &result, sizeof result) == sizeof result;
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  if (read(ends[0], &report, sizeof report) != sizeof report) report.status = -1;
  close(ends[0]);
  int state = 0;
  waitpid(child, &state, 0);
  return report;
}

/// Keys whose score is their scale, told apart by one head: the cheapest input of this size.
io::TraceData cheap_data(std::int64_t queries = kQueries, std::int64_t keys = kKeys) {
  io::ExactShape shape;
  shape.num_queries = queries;
  shape.num_keys = keys;
  const std::vector<float> values = io::make_dial_values("band:1:2", keys, 1);
  return io::make_dial(shape, values, 1.0F);
}

void expect_peak_below(const io::TraceData& data, std::int64_t limit_mib, std::int64_t peak_mib,
                       int threads = 2) {
#ifdef DOSA_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory cannot be told apart";
#endif
  if (status_bytes("VmHWM") < 0) GTEST_SKIP() << "the system does not report peak memory";
  dosa_options options;
  ASSERT_EQ(dosa_options_init(&options, sizeof options), DOSA_OK);
  options.threads = threads;
  if (limit_mib > 0) options.workspace_limit = static_cast<std::uint64_t>(limit_mib * kMib);
  const Report report = call_apart(data, options);
  ASSERT_EQ(report.status, DOSA_OK);
  EXPECT_EQ(report.wrong, 0);
  EXPECT_LE(report.bytes, static_cast<std::int64_t>(options.workspace_limit));
  EXPECT_GT(report.peak, 0);
  EXPECT_LT(report.peak, peak_mib * kMib) << "workspace of " << report.bytes << " bytes";
  ::testing::Test::RecordProperty("peak_bytes", std::to_string(report.peak));
  ::testing::Test::RecordProperty("workspace_bytes", std::to_string(report.bytes));
}

TEST(PeakMemory, DefaultLimit) { expect_peak_below(cheap_data(), 0, 256); }
TEST(PeakMemory, Limit16Mib) { expect_peak_below(cheap_data(), 16, 16); }
TEST(PeakMemory, Limit64Mib) { expect_peak_below(cheap_data(), 64, 64); }
// Stacks are no part of the workspace: beyond its limit, each thread may touch a quarter of a MiB.
TEST(PeakMemory, SixteenThreadsWithTheirStacks) {
  expect_peak_below(cheap_data(kQueries / 2, kKeys / 8), 16, 16 + 4, 16);
}

/// The same on a workload that takes every path: minutes, hence only where asked for.
TEST(PeakMemory, ModelledWorkload) {
  const char* scale = std::getenv("DOSA_TEST_SCALE");
  if (scale == nullptr || std::atof(scale) <= 1) GTEST_SKIP() << "set DOSA_TEST_SCALE above 1";
  io::GenShape shape;
  shape.queries = kQueries;
  shape.keys = kKeys;
  shape.seed = 1;
  shape.threads = 1;  // threads of this process would be lost in the child
  const io::GenModel model = io::glm52_model(8, 5, io::GenDomain::kCode);
  expect_peak_below(io::generate(model, shape), 0, 256);
}

}  // namespace
}  // namespace dosa
