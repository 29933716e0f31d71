// SPDX-License-Identifier: Apache-2.0
// `dosa doctor`: its plain computation equals the oracle's, it finds what is wrong when something
// is, and what it says about the machine is so. This program's calls of dosa_topk go through
// __wrap_dosa_topk, which can spoil the answer.
#include "doctor_check.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "command_line.hpp"
#include "oracle/generate.hpp"
#include "oracle/harness.hpp"
#include "unit/cli/command.hpp"

namespace {
int spoil_call = 0;        // 0: none; n: the n-th call from now
bool spoil_score = false;  // the last bit of a score instead of an id
}  // namespace

extern "C" {
dosa_status __real_dosa_topk(const dosa_problem* problem, const dosa_options* options,
                             const dosa_output* output, void* workspace, size_t workspace_bytes);
dosa_status __wrap_dosa_topk(const dosa_problem* problem, const dosa_options* options,
                             const dosa_output* output, void* workspace, size_t workspace_bytes) {
  const dosa_status status = __real_dosa_topk(problem, options, output, workspace, workspace_bytes);
  if (spoil_call == 0 || --spoil_call != 0) return status;
  const std::int64_t last = output->indices_stride * (problem->num_queries - 1) + 7;
  if (spoil_score) {
    float& score = output->scores[last];
    score = std::bit_cast<float>(std::bit_cast<std::uint32_t>(score) ^ 1U);
  } else {
    ++output->indices[last];
  }
  return status;
}
}

namespace dosa::cli {
namespace {

using Json = nlohmann::json;
using oracle::Problem;

CheckedAnswer oracle_answer(const Problem& problem) {
  CheckedAnswer answer;
  for (const oracle::Row& row : oracle::top_k(problem, {})) {
    answer.indices.insert(answer.indices.end(), row.ids.begin(), row.ids.end());
    answer.scores.insert(answer.scores.end(), row.scores.begin(), row.scores.end());
  }
  return answer;
}

TEST(DoctorCheck, ThePlainComputationIsTheOracles) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    oracle::Random random(seed);
    oracle::Recipe recipe;
    recipe.kind = static_cast<oracle::Kind>(seed % static_cast<int>(oracle::Kind::kTrained));
    recipe.weights = static_cast<oracle::Weights>(seed % static_cast<int>(oracle::Weights::kCount));
    recipe.scales = static_cast<oracle::Scales>(seed % static_cast<int>(oracle::Scales::kCount));
    recipe.windows = oracle::Windows::kOdd;
    recipe.num_queries = static_cast<int>(random.below(4));
    recipe.num_heads = static_cast<int>(random.between(1, 40));
    recipe.sixteenths = static_cast<int>(random.between(1, 9));
    recipe.num_keys = static_cast<int>(random.below(90));
    recipe.topk = static_cast<int>(random.between(1, 50));
    recipe.nan_codes = random.once_in(4) ? 3 : 0;
    recipe.seed = seed;
    const Problem problem = oracle::make_problem(recipe);
    const oracle::Arguments arguments(problem, {});
    if (arguments.get().k_start == nullptr) continue;  // no rows
    EXPECT_EQ(
        first_difference(arguments.get(), plain_topk(arguments.get()), oracle_answer(problem)), -1)
        << recipe;
  }
}

TEST(DoctorCheck, EveryBitCounts) {
  dosa_problem problem{};
  problem.num_queries = 3;
  problem.topk = 4;
  CheckedAnswer answer;
  for (int n = 0; n < 12; ++n) {
    answer.indices.push_back(n);
    answer.scores.push_back(n % 4 == 3 ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
  }
  EXPECT_EQ(first_difference(problem, answer, answer), -1);
  for (std::size_t n = 0; n < 12; ++n) {
    CheckedAnswer other = answer;
    ++other.indices[n];
    EXPECT_EQ(first_difference(problem, answer, other), static_cast<std::int64_t>(n / 4));
    other = answer;
    other.scores[n] = std::isnan(other.scores[n]) ? 0.0F : std::nextafter(other.scores[n], 2.0F);
    EXPECT_EQ(first_difference(problem, answer, other), static_cast<std::int64_t>(n / 4));
  }
  CheckedAnswer other = answer;
  other.scores[3] = -answer.scores[3];  // another NaN
  EXPECT_EQ(first_difference(problem, answer, other), -1);
  answer.scores[0] = 0.0F;
  other.scores[0] = -0.0F;
  EXPECT_EQ(first_difference(problem, answer, other), 0);
}

TEST(DoctorCheck, ExercisesEveryModeAndScreens) {
  const CheckReport report = check_exactness(2);
  EXPECT_EQ(report.difference, "");
  EXPECT_EQ(report.problems, 4);
  EXPECT_EQ(report.calls, 4 * 5 * 2);
  EXPECT_GT(report.screened, 1000);
}

TEST(DoctorCheck, FindsOneWrongIdAndOneWrongBit) {
  for (const bool score : {false, true}) {
    spoil_score = score;
    spoil_call = score ? 40 : 18;
    const CheckReport report = check_exactness(2);
    EXPECT_NE(report.difference.find("row 5"), std::string::npos) << report.difference;
    EXPECT_EQ(spoil_call, 0);
  }
}

TEST(Doctor, AWrongAnswerIsExitCodeOne) {
  spoil_score = false;
  spoil_call = 12;
  const char* arguments[] = {"dosa", "doctor"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_command_line(2, arguments), 1);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("WRONG: first in"), std::string::npos);
}

class DoctorCommand : public test::CommandTest {};

TEST_F(DoctorCommand, SaysWhatIsSo) {
  const test::Outcome outcome =
      test::run_command({"doctor", "--json"}, [] { ::setenv("OMP_NUM_THREADS", "3", 1); });
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report["version"], dosa_version());
  EXPECT_EQ(report["simd"], dosa_simd_target());
  EXPECT_EQ(report["threads"], 3);
  EXPECT_EQ(report["processors"], static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GE(report["usable_processors"], 1);
  EXPECT_LE(report["memory_available_bytes"], report["memory_bytes"]);
  EXPECT_EQ(report["check"]["exact"], true);
  EXPECT_EQ(report["check"]["model"], "ieee");
  EXPECT_GT(report["check"]["screened"], 0);
  EXPECT_NE(report["send"], "");
#if defined(__x86_64__)
  const std::string present = report["features"]["present"].dump();
  EXPECT_EQ(present.find("avx2") != std::string::npos, __builtin_cpu_supports("avx2") != 0);
  if (std::string(dosa_simd_target()) == "AVX3_DL") {
    EXPECT_NE(present.find("avx512vnni"), std::string::npos);
  }
#endif
}

TEST_F(DoctorCommand, AdvisesOnThreads) {
  const auto advice = [](const char* threads) {
    const test::Outcome outcome = test::run_command(
        {"doctor", "--json"}, [threads] { ::setenv("OMP_NUM_THREADS", threads, 1); });
    return Json::parse(outcome.out)["advice"].dump();
  };
  EXPECT_NE(advice("1000").find("1000 threads share"), std::string::npos);
}

TEST_F(DoctorCommand, IsReadable) {
  const std::string text = succeed({"doctor"}).out;
  for (const char* line :
       {"\nprocessor ", "\nthreads ", "\ninstructions ", "\nmemory ",
        "every id and score equals a plain computation's", "In a report of a fault, send"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(test::run_command({"doctor", "now"}).code, 2);
}

}  // namespace
}  // namespace dosa::cli
