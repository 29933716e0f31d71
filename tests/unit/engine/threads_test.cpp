// SPDX-License-Identifier: Apache-2.0
//
// Threads change nothing: one call on many, several calls at once, reports of progress. Run with
// the thread sanitizer by CI.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "dosa/dosa.h"
#include "io/trace.hpp"

namespace dosa {
namespace {

constexpr int kRows = 16;
constexpr int kTopk = 256;

struct Answer {
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kRows * kTopk, -2);
  std::vector<float> scores = std::vector<float>(kRows * kTopk);
  dosa_stats stats = {};
  dosa_status status = DOSA_INTERNAL;
  std::string error;
};

bool operator==(const Answer& a, const Answer& b) {
  return a.ids == b.ids &&
         std::memcmp(a.scores.data(), b.scores.data(), a.scores.size() * sizeof(float)) == 0;
}

struct Progress {
  std::vector<std::int64_t> done;
  std::int64_t total = 0;
};

void note_progress(void* user, std::int64_t rows_done, std::int64_t rows_total) {
  auto* progress = static_cast<Progress*>(user);
  progress->done.push_back(rows_done);
  progress->total = rows_total;
}

class Threads : public ::testing::TestWithParam<dosa_mode> {
 protected:
  Threads() : trace_(io::Trace::open(DOSA_TEST_DATA "/code_small.safetensors")) {}

  /// The first rows of the trace on `threads` threads.
  [[nodiscard]] Answer select(int threads, Progress* progress = nullptr) const {
    dosa_problem problem = trace_.problem();
    problem.num_queries = kRows;
    problem.topk = kTopk;
    dosa_options options;
    dosa_options_init(&options, sizeof options);
    options.mode = GetParam();
    options.threads = threads;
    if (progress != nullptr) {
      options.progress = note_progress;
      options.progress_user = progress;
    }
    Answer answer;
    answer.stats.struct_size = sizeof answer.stats;
    dosa_output output = {};
    output.struct_size = sizeof output;
    output.indices = answer.ids.data();
    output.indices_stride = kTopk;
    output.scores = answer.scores.data();
    output.scores_stride = kTopk;
    output.stats = &answer.stats;
    std::size_t bytes = 0;
    answer.status = dosa_workspace_bytes(&problem, &options, &bytes);
    if (answer.status == DOSA_OK) {
      std::vector<std::uint8_t> workspace(bytes);
      answer.status = dosa_topk(&problem, &options, &output, workspace.data(), bytes);
    }
    if (answer.status != DOSA_OK) answer.error = dosa_last_error();
    return answer;
  }

 private:
  io::Trace trace_;
};

TEST_P(Threads, CountDoesNotChangeTheAnswer) {
  const Answer alone = select(1);
  ASSERT_EQ(alone.status, DOSA_OK) << alone.error;
  for (const int threads : {2, 3, 7, kRows + 5}) {
    const Answer together = select(threads);
    ASSERT_EQ(together.status, DOSA_OK) << together.error;
    EXPECT_TRUE(together == alone) << threads << " threads";
    EXPECT_EQ(together.stats.visible, alone.stats.visible) << threads << " threads";
  }
}

TEST_P(Threads, CallsAtOnceDoNotDisturbEachOther) {
  const Answer alone = select(1);
  ASSERT_EQ(alone.status, DOSA_OK) << alone.error;
  std::vector<Answer> answers(3);
  {
    std::vector<std::jthread> callers;
    for (Answer& answer : answers) {
      callers.emplace_back([this, &answer] { answer = select(2); });
    }
  }
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status, DOSA_OK) << answer.error;
    EXPECT_TRUE(answer == alone);
  }
}

TEST(ThreadErrors, StayInTheirThread) {
  ASSERT_EQ(dosa_options_init(nullptr, 0), DOSA_INVALID_ARGUMENT);
  const std::string mine = dosa_last_error();
  ASSERT_FALSE(mine.empty());
  std::string theirs = "not asked";
  std::jthread([&theirs] { theirs = dosa_last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_EQ(dosa_last_error(), mine);
}

// The callback needs no lock of its own: one thread at a time, and the count never falls.
TEST_P(Threads, ProgressIsToldInOrder) {
  Progress progress;
  const Answer answer = select(4, &progress);
  ASSERT_EQ(answer.status, DOSA_OK) << answer.error;
  ASSERT_FALSE(progress.done.empty());
  EXPECT_EQ(progress.total, kRows);
  EXPECT_EQ(progress.done.back(), kRows);
  for (std::size_t i = 1; i < progress.done.size(); ++i) {
    EXPECT_GE(progress.done[i], progress.done[i - 1]);
  }
}

std::string mode_name(const ::testing::TestParamInfo<dosa_mode>& mode) {
  const std::string names[] = {"Auto", "Base", "Full", "Screen", "Dosa"};
  return names[mode.param];
}

INSTANTIATE_TEST_SUITE_P(Modes, Threads,
                         ::testing::Values(DOSA_MODE_AUTO, DOSA_MODE_BASE, DOSA_MODE_FULL,
                                           DOSA_MODE_SCREEN, DOSA_MODE_DOSA),
                         mode_name);

}  // namespace
}  // namespace dosa
