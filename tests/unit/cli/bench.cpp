// SPDX-License-Identifier: Apache-2.0
// `dosa bench` measures what it says: the inputs cut as asked, all modes, every sample written.
#include <nlohmann/json.hpp>

#include "unit/cli/command.hpp"

namespace dosa::test {
namespace {

using nlohmann::json;

class Bench : public CommandTest {
 protected:
  json measure(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--seconds", "0", "--json", file("times")});
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    table_ = outcome.out;
    return json::parse(read_text(file("times")));
  }
  std::string table_;
};

TEST_F(Bench, CutsFilesAndCountsEveryPair) {
  const std::string trace = generate(
      "t", {"int", "--queries", "9", "--keys", "700", "--heads", "4", "--windows", "causal"});
  const json report = measure({trace, "--keys", "100,600,701", "--rows", "3", "-k", "50", "--heads",
                               "2,5", "--repeat", "3", "--no-sgemm"});
  ASSERT_EQ(report.at("cells").size(), 2U);  // 701 keys are more than there are
  for (const json& cell : report.at("cells")) {
    const int keys = cell.at("N");
    EXPECT_EQ(cell.at("Q"), 3);
    EXPECT_EQ(cell.at("K"), 50);
    ASSERT_EQ(cell.at("modes").size(), 4U);  // r = 5 is more than H
    for (const json& mode : cell.at("modes")) {
      EXPECT_EQ(mode.at("wall_s").size(), 3U);
      EXPECT_GT(mode.at("wall_s")[0].get<double>(), 0.0);
      // The last three tokens see all keys but two, one and none.
      EXPECT_EQ(mode.at("visible"), 3 * keys - 3);
    }
    EXPECT_EQ(cell.at("modes")[3].at("mode"), "dosa");
    EXPECT_EQ(cell.at("modes")[3].at("retained"), 2.0);
  }
  EXPECT_NE(table_.find("share of the ceiling reached"), std::string::npos) << table_;
}

TEST_F(Bench, MadeInputsKeepTheirNames) {
  const json report = measure({"--gen", "glm52 --rows 8,16 --layer 3", "--keys", "3000", "--rows",
                               "4", "-k", "16", "--heads", "7", "--repeat", "1"});
  ASSERT_EQ(report.at("cells").size(), 2U);
  EXPECT_EQ(report.at("cells")[0].at("input"), "glm52 --rows 8 --layer 3");
  EXPECT_EQ(report.at("cells")[1].at("input"), "glm52 --rows 16 --layer 3");
  EXPECT_EQ(report.at("cells")[1].at("layer"), 3);
  EXPECT_EQ(report.at("cells")[1].at("Q"), 4);
  EXPECT_EQ(report.at("cells")[1].at("N"), 3000);
}

TEST_F(Bench, Misuse) {
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& found) {
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(found), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refused({"bench"}, "found no input");
  refused({"bench", "--gen", "real", "--keys", "0"}, "--keys");
  refused({"bench", "--gen", "fly"}, "--gen: found");
  refused({"bench", file("absent")}, "absent");
  EXPECT_EQ(folder_.num_files(), 0U);
}

}  // namespace
}  // namespace dosa::test
