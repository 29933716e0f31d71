// SPDX-License-Identifier: Apache-2.0
//
// A caller whose thread flushes subnormals or rounds upwards gets the same scores, and gets its own
// settings back.
#include "numeric/float_environment.hpp"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dosa/dosa.h"

namespace dosa::test {
namespace {

constexpr unsigned kDefault = 0x1f80;        // all exceptions masked, to nearest, no flushing
constexpr unsigned kFlushResults = 0x8000;   // FTZ
constexpr unsigned kFlushOperands = 0x0040;  // DAZ
constexpr unsigned kRoundUpwards = 0x4000;   // RC = 10
constexpr unsigned kStickyInexact = 0x0020;  // an exception flag the caller may be waiting for
constexpr unsigned kFlags = 0x003f;

/// Sets MXCSR for one scope.
class ControlWord {
 public:
  explicit ControlWord(unsigned value) : saved_(_mm_getcsr()) { _mm_setcsr(value); }
  ~ControlWord() { _mm_setcsr(saved_); }
  ControlWord(const ControlWord&) = delete;
  ControlWord& operator=(const ControlWord&) = delete;

 private:
  unsigned saved_;
};

/// A product that the compiler cannot compute in advance.
float multiply(float a, float b) {
  const volatile float first = a;
  const volatile float second = b;
  return first * second;
}

const unsigned kWords[] = {kDefault,
                           kDefault | kFlushResults | kFlushOperands,
                           kDefault | kFlushOperands,
                           kDefault | kRoundUpwards,
                           kDefault | kFlushResults | kFlushOperands | kRoundUpwards,
                           kDefault | kStickyInexact};

TEST(FloatEnvironment, SetsTheDefaultAndRestoresTheCallers) {
  for (const unsigned word : kWords) {
    const ControlWord caller(word);
    {
      const FloatEnvironment environment;
      EXPECT_EQ(_mm_getcsr(), kDefault);
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      EXPECT_EQ(multiply(0x1p-149F, 1.0F), 0x1p-149F);                         // DAZ would give 0
      EXPECT_EQ(multiply(0x1p-100F, 0x1p-40F), 0x1p-140F);                     // FTZ would give 0
      EXPECT_EQ(multiply(1.0F + 0x1p-23F, 1.0F + 0x1p-23F), 1.0F + 0x1p-22F);  // upwards: more
    }
    EXPECT_EQ(_mm_getcsr(), word);
  }
}

TEST(FloatEnvironment, TheFlagsChangeResultsWithoutIt) {
  const ControlWord caller(kDefault | kFlushResults | kFlushOperands);
  EXPECT_EQ(multiply(0x1p-149F, 1.0F), 0.0F);
  EXPECT_EQ(multiply(0x1p-100F, 0x1p-40F), 0.0F);
}

TEST(FloatEnvironment, Nests) {
  const unsigned word = kDefault | kFlushResults;
  const ControlWord caller(word);
  {
    const FloatEnvironment outer;
    {
      const ControlWord inside(kDefault | kRoundUpwards);
      const FloatEnvironment inner;
      EXPECT_EQ(_mm_getcsr(), kDefault);
    }
    EXPECT_EQ(_mm_getcsr(), kDefault);
  }
  EXPECT_EQ(_mm_getcsr(), word);
}

/// Sixteen heads, sixteen coordinates, four keys; products of weight and dot product are subnormal
/// and the key scales lift them into the normal range.
std::array<float, 4> scores_of_small_weights() {
  constexpr int kHeads = 16;
  constexpr int kDim = 16;
  constexpr std::int64_t kKeys = 4;
  std::vector<std::uint8_t> q(kHeads * kDim, 0x01);
  std::vector<std::uint8_t> k(kKeys * kDim, 0x09);
  const std::vector<float> weights(kHeads, 0x1.8p-126F);
  const std::vector<float> scale = {1.0F, 0x1p40F, 0x1.99999ap60F, 0x1p100F};
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = 1;
  problem.num_keys = kKeys;
  problem.num_heads = kHeads;
  problem.head_dim = kDim;
  problem.topk = 1;
  problem.page_size = 1;
  problem.q = q.data();
  problem.q_stride = kHeads * kDim;
  problem.k = k.data();
  problem.k_stride = kDim;
  problem.k_scale = scale.data();
  problem.weights = weights.data();
  problem.weights_stride = kHeads;
  dosa_options options{};
  EXPECT_EQ(dosa_options_init(&options, sizeof options), DOSA_OK);
  options.threads = 1;  // this thread computes
  std::size_t bytes = 0;
  EXPECT_EQ(dosa_workspace_bytes(&problem, &options, &bytes), DOSA_OK) << dosa_last_error();
  std::vector<std::byte> workspace(bytes);
  std::array<float, kKeys> scores{};
  EXPECT_EQ(dosa_scores(&problem, &options, 0, 1, scores.data(), kKeys, workspace.data(), bytes),
            DOSA_OK)
      << dosa_last_error();
  return scores;
}

TEST(FloatEnvironment, ScoresDoNotDependOnTheCallers) {
  const std::array<float, 4> expected = scores_of_small_weights();
  EXPECT_GT(expected[0], 0.0F);
  EXPECT_LT(expected[0], std::numeric_limits<float>::min());  // a subnormal score
  EXPECT_TRUE(std::isnormal(expected[2]));
  for (const unsigned word : kWords) {
    const ControlWord caller(word);
    const std::array<float, 4> scores = scores_of_small_weights();
    EXPECT_EQ(_mm_getcsr() & ~kFlags, word & ~kFlags);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(scores[i]), std::bit_cast<std::uint32_t>(expected[i]));
    }
  }
}

}  // namespace
}  // namespace dosa::test
