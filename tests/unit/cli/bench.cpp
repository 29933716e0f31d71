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

TEST_F(Bench, OnlyTheModesAskedFor) {
  const json report =
      measure({"--gen", "glm52 --rows 8 --layer 3", "--keys", "3000", "--rows", "4", "-k", "16",
               "--heads", "7", "--repeat", "2", "--modes", "dosa,full,screen"});
  const json& modes = report.at("cells")[0].at("modes");
  ASSERT_EQ(modes.size(), 3U);
  EXPECT_EQ(modes[0].at("mode"), "full");
  EXPECT_EQ(modes[1].at("mode"), "screen");
  EXPECT_EQ(modes[2].at("mode"), "dosa");
  EXPECT_EQ(modes[1].at("retained"), 7.0);
  EXPECT_FALSE(modes[0].contains("peak_bytes"));
}

/// A call touches most of its workspace, and has no other memory that grows with the input.
TEST_F(Bench, MemoryOfACallIsItsWorkspace) {
  const json report =
      measure({"--gen", "glm52 --rows 8 --layer 3", "--keys", "8192", "--rows", "32", "--repeat",
               "1", "--modes", "base,auto", "--memory", "--threads", "2"});
  for (const json& mode : report.at("cells")[0].at("modes")) {
    if (!mode.contains("peak_bytes")) GTEST_SKIP() << "the system does not tell";
    const double workspace = mode.at("workspace_bytes");
    const double peak = mode.at("peak_bytes");
    EXPECT_GT(peak, workspace / 2) << mode;
    EXPECT_LT(peak, workspace + (8 << 20)) << mode;
  }
}

TEST_F(Bench, TimesALibraryOfSomebodyElse) {
  const std::vector<std::string> arguments = {"--gen",    "glm52 --rows 8 --layer 3",
                                              "--keys",   "3000",
                                              "--rows",   "4",
                                              "-k",       "16",
                                              "--modes",  "base",
                                              "--repeat", "2"};
  std::vector<std::string> with_peer = arguments;
  with_peer.insert(with_peer.end(), {"--peer", "theirs=" DOSA_TEST_PEER});
  const json report = measure(with_peer);
  const json& modes = report.at("cells")[0].at("modes");
  ASSERT_EQ(modes.size(), 2U);
  EXPECT_EQ(modes[1].at("mode"), "theirs");
  EXPECT_EQ(modes[1].at("wall_s").size(), 2U);
  EXPECT_DOUBLE_EQ(modes[1].at("ids_in_common"), 15.0 / 16);  // the first of 16 is missing
  EXPECT_FALSE(modes[1].contains("visible"));
  EXPECT_NE(table_.find("93.75% of the ids in common"), std::string::npos) << table_;
  with_peer.insert(with_peer.begin(), "bench");
  with_peer.insert(with_peer.end(), {"--threads", "3"});
  const Outcome failed = run_command(with_peer);
  EXPECT_EQ(failed.code, 2);
  EXPECT_NE(failed.err.find("theirs: found status 7"), std::string::npos) << failed.err;
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
  refused({"bench", "--gen", "fly"}, "--gen: found 'fly', expected one of dial, ");
  refused({"bench", file("absent")}, "absent");
  refused({"bench", "--gen", "real", "--modes", "auto,dosa"}, "--modes: found auto,dosa");
  refused({"bench", "--gen", "real", "--modes", "fast"}, "--modes");
  refused({"bench", "--gen", "real", "--peer", "nameless"}, "--peer: found 'nameless'");
  refused({"bench", "--gen", "real", "--peer", "a=" + file("absent.so")}, "--peer: found");
  EXPECT_EQ(folder_.num_files(), 0U);
}

}  // namespace
}  // namespace dosa::test
