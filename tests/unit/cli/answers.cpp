// SPDX-License-Identifier: Apache-2.0
// What the command answers on inputs whose answer is known, and that it says it in the right place.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "io/gen_exact.hpp"
#include "io/output_file.hpp"
#include "unit/cli/command.hpp"

namespace dosa::test {
namespace {

using Json = nlohmann::json;

const std::string kReal = std::string(DOSA_TEST_DATA) + "/code_small.safetensors";

template <typename Element>
std::vector<Element> read_tensor(const std::string& path, const std::string& name) {
  const io::SafeTensors file = io::SafeTensors::open(path);
  const io::Tensor* tensor = file.find(name);
  if (tensor == nullptr) {
    return {};
  }
  std::vector<Element> elements(tensor->data.size() / sizeof(Element));
  std::memcpy(elements.data(), tensor->data.data(), tensor->data.size());
  return elements;
}

class Answers : public CommandTest {};

TEST_F(Answers, VersionAndHelp) {
  EXPECT_EQ(succeed({"--version"}).out.substr(0, 5), "dosa ");
  for (const char* command : {"run", "verify", "info", "gen", "explain"}) {
    EXPECT_NE(succeed({"--help"}).out.find(command), std::string::npos);
    EXPECT_NE(succeed({command, "--help"}).out.find("Usage: dosa " + std::string(command)),
              std::string::npos);
  }
}

TEST_F(Answers, PlateauTakesTheLowestTiedIds) {
  const std::string trace =
      generate("t", {"dial", "--queries", "2", "--keys", "7613", "--values", "plateau:889:1536"});
  succeed({"run", trace, "-k", "2048", "--out", file("top"), "--scores"});
  const auto values = read_tensor<float>(trace, "k_scale");
  std::vector<std::int32_t> expected;
  std::int64_t tied = 2048 - 889;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 2.0F || (values[i] == 1.0F && tied-- > 0)) {
      expected.push_back(static_cast<std::int32_t>(i));
    }
  }
  const auto indices = read_tensor<std::int32_t>(file("top"), "indices");
  const auto scores = read_tensor<float>(file("top"), "scores");
  ASSERT_EQ(indices.size(), 2U * 2048);
  ASSERT_EQ(scores.size(), indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    ASSERT_EQ(indices[i], expected[i % 2048]);
    ASSERT_EQ(scores[i], values[static_cast<std::size_t>(indices[i])]);
  }
}

TEST_F(Answers, ResidueRowsDiffer) {
  const std::string trace = generate(
      "t", {"residue", "--queries", "40", "--keys", "4096", "--dim", "32", "--heads", "3"});
  for (const char* mode : {"auto", "base", "full", "screen", "dosa"}) {
    succeed({"run", trace, "-k", "100", "--mode", mode, "--out", file("top")});
    const auto indices = read_tensor<std::int32_t>(file("top"), "indices");
    ASSERT_EQ(indices.size(), 40U * 100);
    for (std::int32_t i = 0; i < 4000; ++i) {
      ASSERT_EQ(indices[static_cast<std::size_t>(i)], i / 100 % 32 + 32 * (i % 100)) << mode;
    }
  }
}

TEST_F(Answers, OrderAndForm) {
  const std::string trace = generate("t", {"dial", "--queries", "1", "--keys", "300", "--values",
                                           "spread:1:1", "--windows", "sliding", "--width", "200"});
  succeed({"run", trace, "-k", "50", "--order", "score", "--form", "relative", "--out", file("top"),
           "--scores"});
  const auto values = read_tensor<float>(trace, "k_scale");
  std::vector<std::int32_t> order(200);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return values[static_cast<std::size_t>(a) + 100] > values[static_cast<std::size_t>(b) + 100];
  });
  order.resize(50);
  EXPECT_EQ(read_tensor<std::int32_t>(file("top"), "indices"), order);
  succeed({"run", trace, "-k", "5", "--forced-first", "2", "--forced-last", "1", "--out",
           file("forced")});
  const auto forced = read_tensor<std::int32_t>(file("forced"), "indices");
  EXPECT_EQ((std::vector<std::int32_t>{forced[0], forced[1], forced[4]}),
            (std::vector<std::int32_t>{100, 101, 299}));
}

TEST_F(Answers, OddWindowsAndShortRowsAreData) {
  io::ExactShape shape;
  shape.num_queries = 6;
  shape.num_keys = 300;
  io::TraceData data = io::make_int(shape);
  data.k_start = {0, 200, -50, 290, 299, 400};
  data.k_end = {300, 100, 10, 5000, 300, 500};  // all, inverted, overlong twice, one, outside
  {
    io::OutputFile output(file("t"));
    output.commit(data.tensors(), {});
  }
  const Json report =
      Json::parse(succeed({"run", file("t"), "-k", "512", "--json", "--out", file("top")}).out);
  EXPECT_EQ(report["short_rows"], 6);
  EXPECT_EQ(report["visible"], 300 + 0 + 10 + 10 + 1 + 0);
  const auto indices = read_tensor<std::int32_t>(file("top"), "indices");
  ASSERT_EQ(indices.size(), 6U * 512);
  const std::vector<std::pair<int, int>> windows = {{0, 300},   {0, 0},     {0, 10},
                                                    {290, 300}, {299, 300}, {0, 0}};
  for (std::size_t row = 0; row < windows.size(); ++row) {
    for (int j = 0; j < 512; ++j) {
      const int id = windows[row].first + j;
      ASSERT_EQ(indices[row * 512 + static_cast<std::size_t>(j)],
                id < windows[row].second ? id : -1);
    }
  }
  succeed({"verify", file("t"), "-k", "100"});
  for (const char* row : {"0", "1", "2", "5"}) {
    succeed({"explain", file("t"), "--row", row, "-k", "4"});
  }
}

TEST_F(Answers, EmptyExtents) {
  const std::string no_keys = generate("n", {"int", "--queries", "2", "--keys", "0"});
  succeed({"run", no_keys, "-k", "3", "--out", file("top")});
  EXPECT_EQ(read_tensor<std::int32_t>(file("top"), "indices"), std::vector<std::int32_t>(6, -1));
  succeed({"verify", no_keys});
  succeed({"explain", no_keys, "--row", "0"});
  succeed({"info", no_keys});
  const std::string no_queries = generate("q", {"int", "--queries", "0", "--keys", "9"});
  succeed({"run", no_queries, "--out", file("none"), "--scores"});
  EXPECT_EQ(io::SafeTensors::open(file("none")).find("scores")->shape,
            (std::vector<std::int64_t>{0, 2048}));
  succeed({"verify", no_queries});
  succeed({"info", no_queries});
}

TEST_F(Answers, SameSeedSameBytes) {
  for (const char* kind : {"dial", "dial-neg", "zero", "residue", "int", "real"}) {
    const std::vector<std::string> arguments = {kind, "--queries", "4", "--keys", "100"};
    const std::string first = read_text(generate("a", arguments));
    EXPECT_EQ(first, read_text(generate("b", arguments))) << kind;
    succeed({"verify", file("a"), "-k", "7"});
  }
}

TEST_F(Answers, VerifyAndRunReportTheRealTrace) {
  const Json verified = Json::parse(succeed({"verify", kReal, "-k", "256", "--json"}).out);
  EXPECT_EQ(verified["identical"], true);
  EXPECT_EQ(verified["violations"], 0);
  EXPECT_GT(verified["rejected"], 0);
  EXPECT_GE(verified["min_margin"], 0);
  const Json ran = Json::parse(
      succeed({"run", kReal, "-k", "256", "--mode", "dosa", "--threads", "1", "--json"}).out);
  for (const char* field : {"visible", "screened", "fully_scored", "records", "rounds",
                            "fallback_rows", "short_rows", "screened_rows", "mean_slack",
                            "mean_deficit", "seconds", "threads", "simd", "shape", "options"}) {
    EXPECT_TRUE(ran.contains(field)) << field;
  }
  EXPECT_EQ(ran["threads"], 1);
  EXPECT_EQ(ran["options"]["mode"], "dosa");
  EXPECT_EQ(ran["visible"], 1046560);
  EXPECT_LT(ran["fully_scored"], ran["visible"]);
  EXPECT_NE(succeed({"verify", kReal, "-k", "256"}).out.find("identical in all 64 rows"),
            std::string::npos);
}

TEST_F(Answers, InfoCountsWhatIsOdd) {
  io::ExactShape shape;
  shape.num_queries = 2;
  shape.num_keys = 6;
  io::TraceData data = io::make_int(shape);
  data.k_scale = {0, -1, 0x1p-140F, 2, 0.5F, HUGE_VALF};
  data.k[3] = 0x7f;
  data.k_end = {6, 0};
  {
    io::OutputFile output(file("t"));
    output.commit(data.tensors(), {{"note", "odd"}});
  }
  const Json report = Json::parse(succeed({"info", file("t"), "--json"}).out);
  const Json scale = {{"min", 0.5},    {"max", 2.0},     {"zero", 1},
                      {"negative", 1}, {"subnormal", 1}, {"nonfinite", 1}};
  EXPECT_EQ(report["trace"]["k_scale"], scale);
  EXPECT_EQ(report["trace"]["nan_codes"]["k"], 1);
  EXPECT_EQ(report["trace"]["windows"]["empty"], 1);
  EXPECT_EQ(report["metadata"]["note"], "odd");
  EXPECT_NE(succeed({"info", file("t")}).out.find("1 zero, 1 negative, 1 subnormal"),
            std::string::npos);
}

TEST_F(Answers, ExplainSaysWhatHappened) {
  const Json report =
      Json::parse(succeed({"explain", kReal, "--row", "5", "-k", "256", "--json"}).out);
  EXPECT_EQ(report["window"], (Json{0, 16326}));
  EXPECT_EQ(report["bounded"], 16326);
  EXPECT_GE(report["slack_quantiles"]["0%"], 0);
  EXPECT_LE(report["under_kth"], 16326 - 256);
  EXPECT_EQ(report["head"].size(), 32U);
  const std::string text = succeed({"explain", kReal, "--row", "5", "-k", "256"}).out;
  EXPECT_NE(text.find("The query sees 16,326 keys, [0, 16326), and selects the 256 best."),
            std::string::npos);
}

}  // namespace
}  // namespace dosa::test
