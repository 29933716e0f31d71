// SPDX-License-Identifier: Apache-2.0
#include "io/gen_exact.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/error.hpp"

namespace dosa::io {
namespace {

ExactShape shape_of(std::int64_t queries, std::int64_t keys, std::int64_t heads, std::int64_t dim,
                    std::uint64_t seed = 0) {
  return {queries, keys, heads, dim, seed};
}

/// The value of a finite e4m3 code, from the definition of the format.
double decode(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const double magnitude =
      exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), exponent - 10);
  return code < 0x80 ? magnitude : -magnitude;
}

/// The score of (row, key) in double, which is exact for these inputs.
double score(const TraceData& data, std::int64_t row, std::int64_t key) {
  double sum = 0;
  for (std::int64_t h = 0; h < data.num_heads; ++h) {
    double dot = 0;
    for (std::int64_t d = 0; d < data.head_dim; ++d) {
      const auto q_at = static_cast<std::size_t>((row * data.num_heads + h) * data.head_dim + d);
      const auto k_at = static_cast<std::size_t>(key * data.head_dim + d);
      dot += decode(data.q[q_at]) * decode(data.k[k_at]);
    }
    sum += double{data.weights[static_cast<std::size_t>(row * data.num_heads + h)]} *
           std::max(dot, 0.0);
  }
  return sum * double{data.k_scale[static_cast<std::size_t>(key)]};
}

/// FNV-1a over all tensors: pins the bytes, which must not depend on machine or compiler.
std::uint64_t digest(const TraceData& data) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const Tensor& tensor : data.tensors()) {
    for (const std::byte byte : tensor.data) {
      hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
    }
  }
  return hash;
}

TEST(Exact, DialScoresAreTheValues) {
  const ExactShape shape = shape_of(2, 100, 4, 32, 7);
  const std::vector<float> values = make_dial_values("band:1:1.2", 100, 7);
  const TraceData up = make_dial(shape, values, 1.0F);
  const TraceData down = make_dial(shape, values, -1.0F);
  for (std::int64_t key = 0; key < 100; ++key) {
    EXPECT_EQ(score(up, 1, key), double{values[static_cast<std::size_t>(key)]});
    EXPECT_EQ(score(down, 0, key), -double{values[static_cast<std::size_t>(key)]});
  }
}

TEST(Exact, ZeroScoresAreZeroButForTheWinners) {
  const TraceData data = make_zero(shape_of(1, 300, 2, 16, 3), 20);
  std::multiset<double> scores;
  for (std::int64_t key = 0; key < 300; ++key) {
    scores.insert(score(data, 0, key));
  }
  EXPECT_EQ(scores.count(0.0), 280U);
  for (int j = 1; j <= 20; ++j) {
    EXPECT_EQ(scores.count(j), 1U);
  }
}

TEST(Exact, ResidueMarksEqualResidues) {
  const TraceData data = make_residue(shape_of(40, 100, 2, 32));
  for (std::int64_t row = 0; row < 40; ++row) {
    for (std::int64_t key = 0; key < 100; ++key) {
      EXPECT_EQ(score(data, row, key), key % 32 == row % 32 ? 1.0 : 0.0);
    }
  }
}

TEST(Exact, IntEntriesAreOrderFree) {
  const TraceData data = make_int(shape_of(8, 500, 16, 32, 5));
  std::set<double> entries;
  for (const std::uint8_t code : data.q) {
    entries.insert(decode(code));
  }
  for (const std::uint8_t code : data.k) {
    entries.insert(decode(code));
  }
  EXPECT_EQ(entries, (std::set<double>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(std::set<float>(data.k_scale.begin(), data.k_scale.end()),
            (std::set<float>{0.25F, 0.5F, 1, 2, 4}));
  for (const float weight : data.weights) {
    EXPECT_EQ(weight * 8, std::floor(weight * 8));
    EXPECT_LE(std::fabs(weight), 4);
  }
}

TEST(Exact, RealCodesAreFinite) {
  const TraceData data = make_real(shape_of(8, 500, 16, 32, 5));
  std::set<int> codes(data.k.begin(), data.k.end());
  EXPECT_EQ(codes.size(), 254U);
  EXPECT_EQ(codes.count(0x7f) + codes.count(0xff), 0U);
  for (const float scale : data.k_scale) {
    EXPECT_GE(scale, 0x1p-12F);
    EXPECT_LT(scale, 0x1p-8F);
  }
}

TEST(Exact, SameSeedSameBytesEverywhere) {
  EXPECT_EQ(digest(make_int(shape_of(3, 64, 4, 16, 1))), 0x72c5e5a31cdad7eaU);
  EXPECT_EQ(digest(make_real(shape_of(3, 64, 4, 16, 1))), 0x8d54feeeed4d854U);
  EXPECT_NE(digest(make_real(shape_of(3, 64, 4, 16, 2))),
            digest(make_real(shape_of(3, 64, 4, 16, 1))));
}

TEST(Windows, AreFullCausalOrSliding) {
  TraceData data = blank_trace(shape_of(3, 10, 1, 16));
  EXPECT_EQ(data.k_end, (std::vector<std::int32_t>{10, 10, 10}));
  set_windows(data, Windows::kCausal, 0);
  EXPECT_EQ(data.k_start, (std::vector<std::int32_t>{0, 0, 0}));
  EXPECT_EQ(data.k_end, (std::vector<std::int32_t>{8, 9, 10}));
  set_windows(data, Windows::kSliding, 9);
  EXPECT_EQ(data.k_start, (std::vector<std::int32_t>{0, 0, 1}));
  TraceData more_queries = blank_trace(shape_of(4, 2, 1, 16));
  set_windows(more_queries, Windows::kCausal, 0);
  EXPECT_EQ(more_queries.k_end, (std::vector<std::int32_t>{0, 0, 1, 2}));
}

std::int64_t count_of(const std::vector<float>& values, float value) {
  return std::count(values.begin(), values.end(), value);
}

TEST(Values, AreWhatTheirNamesSay) {
  const auto plateau = make_dial_values("plateau:889:1536", 7613, 1);
  EXPECT_EQ(count_of(plateau, 2.0F), 889);
  EXPECT_EQ(count_of(plateau, 1.0F), 1536);
  EXPECT_EQ(count_of(plateau, 0.5F), 7613 - 889 - 1536);
  const auto ladder = make_dial_values("ladder:64", 65536, 1);
  EXPECT_EQ(count_of(ladder, 63.0F / 64), 1024);
  const auto spread = make_dial_values("spread:1:0.245", 16385, 3);
  EXPECT_EQ(std::set<float>(spread.begin(), spread.end()).size(), 16385U);
  const auto groups = make_dial_values("groups:4", 8204, 1);
  EXPECT_EQ(std::set<float>(groups.begin(), groups.end()).size(), 2051U);
  EXPECT_EQ(groups[4], groups[7]);
  const auto levels = make_dial_values("levels:8", 4096, 2);
  EXPECT_EQ(std::set<float>(levels.begin(), levels.end()).size(), 8U);
  const auto bits = make_dial_values("lastbits", 32768, 42);
  EXPECT_EQ(std::set<float>(bits.begin(), bits.end()).size(), 1024U);
  const auto crowd = make_dial_values("crowd:1000:5000", 8192, 11);
  EXPECT_EQ(std::count_if(crowd.begin(), crowd.end(), [](float v) { return v >= 2; }), 1000);
  EXPECT_EQ(count_of(crowd, 0.5F), 2192);
  const auto tiny = make_dial_values("subnormal", 5000, 0);
  EXPECT_EQ(tiny[0], 0x1p-149F);
  EXPECT_EQ(tiny[4999], 5000 * 0x1p-149F);
  EXPECT_EQ(make_dial_values("alternate:1e-30:1e30", 3, 0),
            (std::vector<float>{1e-30F, 1e30F, 1e-30F}));
  EXPECT_EQ(make_dial_values("constant:3e38", 2, 0), (std::vector<float>{3e38F, 3e38F}));
  for (const float value : make_dial_values("uniform", 1000, 9)) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1);
  }
}

TEST(Values, EveryNameWorksForNoKeys) {
  for (const DialValues& values : dial_values()) {
    std::string spec(values.name);
    if (!values.parameters.empty()) {
      spec += ":1";
    }
    if (values.parameters.find(':') != std::string_view::npos) {
      spec += ":2";
    }
    EXPECT_TRUE(make_dial_values(spec, 0, 0).empty()) << spec;
    EXPECT_EQ(make_dial_values(spec, 3, 0).size(), 3U) << spec;
  }
}

TEST(Values, RefusesOtherSpecs) {
  for (const char* spec : {"", "unknown", "uniform:1", "band", "band:1", "band:1:2:3", "band:x:1",
                           "band:1:inf", "band:nan:1", "ladder:0", "ladder:1.5", "plateau:-1:3",
                           "ladder:99999999999999", "band:1: 2", "constant:1e400"}) {
    EXPECT_THROW((void)make_dial_values(spec, 10, 0), Error) << spec;
  }
}

TEST(Shape, RefusesExtentsThatAreNone) {
  EXPECT_THROW((void)blank_trace(shape_of(-1, 1, 1, 16)), Error);
  EXPECT_THROW((void)blank_trace(shape_of(1, 1, std::int64_t{1} << 40, std::int64_t{1} << 40)),
               Error);
}

}  // namespace
}  // namespace dosa::io
