// SPDX-License-Identifier: Apache-2.0
// Every misuse ends with exit code 2 and one line on stderr, and leaves no file behind.
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "io/gen_exact.hpp"
#include "io/output_file.hpp"
#include "unit/cli/command.hpp"

namespace dosa::test {
namespace {

using Arguments = std::vector<std::string>;

class Misuse : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    io::ExactShape shape;
    shape.num_queries = 3;
    shape.num_keys = 500;
    shape.num_heads = 4;
    shape.head_dim = 32;
    data_ = io::make_int(shape);
    write("good", data_.tensors());
  }

  void write(const std::string& name, std::vector<io::Tensor> tensors) const {
    io::OutputFile output(file(name));
    output.commit(std::move(tensors), {});
  }

  /// `found` must be part of the only line.
  void refuse(const Arguments& arguments, const std::string& found,
              const std::function<void()>& prepare = nullptr) const {
    const std::size_t files = folder_.num_files();
    const Outcome outcome = run_command(arguments, prepare);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_EQ(outcome.err.substr(0, 6), "dosa: ");
    EXPECT_NE(outcome.err.find(found), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(folder_.num_files(), files);
  }

  io::TraceData data_;
};

#ifndef DOSA_CUDA_ENGINE
TEST_F(Misuse, ProbeWithoutCuda) {
  refuse({"probe"}, "probe: found a build without CUDA, expected one configured with");
}

TEST_F(Misuse, BackendWithoutCuda) {
  for (const char* command : {"run", "verify", "bench"}) {
    refuse({command, file("good"), "--backend", "cuda"},
           "--backend: found cuda in a build without CUDA, expected cpu, or a build configured");
  }
  refuse({"run", file("good"), "--backend", "gpu"}, "--backend: found 'gpu', expected");
}
#endif

TEST_F(Misuse, Arguments) {
  refuse({}, "arguments: found no command, expected one of run, verify, explain, info, gen");
  refuse({"fly"}, "arguments: found 'fly', expected one of run, verify,");
  refuse({"run"}, "arguments: found no TRACE, expected one (see 'dosa run --help')");
  refuse({"run", file("good"), "--frobnicate"},
         "arguments: found '--frobnicate', expected only what is listed (see 'dosa run --help')");
  refuse({"run", file("good"), "other"}, "found 'other'");
  refuse({"--frobnicate", "run", file("good")}, "found '--frobnicate'");
  refuse({"run", file("good"), "-k"},
         "--topk: found no value, expected one (see 'dosa run --help')");
  refuse({"run", file("good"), "-k", "5", "-k", "6", "--topk", "7"},
         "--topk: found 3 values, expected one");
  refuse({"bench", file("good"), "--keys", "100", "--keys", "200"},
         "--keys: found 2 values, expected one");
  refuse({"gen"}, "arguments: found no command, expected one of dial, dial-neg, zero");
  refuse({"gen", "dial"}, "arguments: found no --out, expected one (see 'dosa gen dial --help')");
  refuse({"explain", file("good")}, "found no --row");
}

TEST_F(Misuse, Numbers) {
  refuse({"run", file("good"), "-k", "0"}, "--topk: found '0', expected a whole number from 1 to");
  refuse({"run", file("good"), "-k", "-1"}, "--topk: found '-1'");
  refuse({"run", file("good"), "-k", "8193"}, "expected a whole number from 1 to 8192");
  refuse({"run", file("good"), "-k", "1e3"}, "--topk: found '1e3'");
  refuse({"run", file("good"), "-k", "99999999999999999999"}, "--topk: found '9999");
  refuse({"run", file("good"), "-k", ""}, "--topk: found ''");
  refuse({"verify", file("good"), "--topk=0"}, "--topk: found '0'");
  refuse({"run", file("good"), "--heads", "129"}, "--heads: found '129'");
  refuse({"run", file("good"), "--heads", "5"}, "--heads: found 5, expected at most H = 4");
  refuse({"run", file("good"), "--threads", "-2"}, "--threads: found '-2'");
  refuse({"run", file("good"), "--workspace-mib", "1"}, "--workspace-mib: found '1'");
  refuse({"run", file("good"), "--forced-first", "x"}, "--forced-first: found 'x'");
  refuse({"explain", file("good"), "--row", "3"}, "--row: found 3, expected a row below Q = 3");
  refuse({"explain", file("good"), "--row", "-1"}, "--row: found '-1'");
}

TEST_F(Misuse, Lists) {
  const auto bench = [&](const char* option, const char* value) {
    return Arguments{"bench", file("good"), option, value};
  };
  refuse(bench("--keys", "100,x"), "--keys: found 'x', expected a whole number from 1 to 2147");
  refuse(bench("--keys", "100,,200"), "--keys: found '', expected a whole number");
  refuse(bench("--heads", "3,129"), "--heads: found '129', expected a whole number from 1 to 128");
  refuse(bench("--rows", "0"), "--rows: found '0', expected a whole number from 1");
  refuse(bench("--modes", "full,fast"),
         "--modes: found 'fast', expected some of base, full, sgemm,");
  refuse(bench("--seconds", "-1"), "--seconds: found '-1', expected seconds, 0 or more");
  refuse(bench("--cell-seconds", "nan"), "--cell-seconds: found 'nan', expected seconds");
  refuse({"study", file("good"), "--widths", "4,0"},
         "--widths: found '0', expected a whole number");
  refuse({"study", file("good"), "--facets", "none"}, "--facets: found 'none', expected some of");
}

// What fits no input would leave an empty table.
TEST_F(Misuse, NothingToMeasure) {
  refuse({"bench", file("good"), "--keys", "501,900"},
         "--keys: found 501,900, expected a length that some input has");
  refuse({"bench", file("good"), "--heads", "5,6"}, "--heads: found 5,6, expected at most H = 4");
  refuse({"study", file("good"), "-k", "9", "--widths", "5", "--facets", "retained"},
         "--widths: found 5, expected one of at most H = 4 of");
  refuse({"study", file("good"), "-k", "9", "--heads", "5"}, "--heads: found 5, expected at most");
  for (const char* command : {"bench", "study"}) {
    refuse({command, "--gen", "foo"},
           "--gen: found 'foo', expected one of dial, dial-neg, zero, residue, int,");
    refuse({command, "--gen", "int --layer 3"},
           "--gen: found '--layer', expected only what is listed (see 'dosa gen int");
  }
}

TEST_F(Misuse, Words) {
  refuse({"run", file("good"), "--mode", "fast"},
         "--mode: found 'fast', expected one of auto, base, full, screen, dosa");
  for (const char* option : {"--threshold", "--form", "--order", "--retain", "--allowance",
                             "--allowance-groups", "--aggregate", "--statistics"}) {
    refuse({"run", file("good"), option, "other\nline"},
           std::string(option) + ": found 'other\\x0aline', expected one of ");
  }
}

TEST_F(Misuse, Inputs) {
  write_text(file("text"), "not a trace");
  refuse({"run", file("missing")}, "found No such file or directory, expected a readable file");
  refuse({"run", file(".")}, "found a directory, expected a regular file");
  refuse({"run", "/dev/zero"}, "found a special file, expected a regular file");
  refuse({"run", file("text")}, "header length: found");
  for (const char* command : {"verify", "info"}) {
    refuse({command, file("missing")}, "found No such file or directory");
  }
  refuse({"explain", file("missing"), "--row", "0"}, "found No such file or directory");
}

TEST_F(Misuse, WrongTensors) {
  std::vector<io::Tensor> bytes = data_.tensors();
  bytes[0].dtype = io::DType::kU8;
  write("bytes", bytes);
  refuse({"run", file("bytes")}, "tensor 'q': found U8 [3, 4, 32], expected F8_E4M3 [Q, H, D]");
  std::vector<io::Tensor> rank = data_.tensors();
  rank[3].shape = {12};
  write("rank", rank);
  refuse({"run", file("rank")}, "tensor 'weights': found F32 [12], expected F32 [3, 4]");
  const Outcome info = run_command({"info", file("rank")});
  EXPECT_EQ(info.code, 2);
  EXPECT_NE(info.out.find("weights  F32 [12]"), std::string::npos);
  EXPECT_NE(info.err.find("/rank': tensor 'weights': found F32 [12]"), std::string::npos);
  std::vector<io::Tensor> missing = data_.tensors();
  missing.pop_back();
  write("missing_end", missing);
  refuse({"verify", file("missing_end")}, "tensor 'k_end': found no such tensor, expected I32 [3]");
}

TEST_F(Misuse, ShapesThatTheEngineDoesNotServe) {
  io::ExactShape shape;
  shape.num_queries = 1;
  shape.num_keys = 10;
  shape.num_heads = 2;
  shape.head_dim = 24;  // no multiple of 16
  refuse({"gen", "int", "--dim", "24", "-o", file("new")},
         "--dim: found 24, expected a multiple of 16, up to 256");
  const io::TraceData odd = io::make_int(shape);
  write("odd", odd.tensors());
  refuse({"run", file("odd")}, "found 24, expected");
  shape.head_dim = 32;
  shape.num_heads = 129;
  const io::TraceData many = io::make_int(shape);
  write("many", many.tensors());
  refuse({"run", file("many")}, "found 129, expected");
}

TEST_F(Misuse, Outputs) {
  write_text(file("plain"), "");
  refuse({"run", file("good"), "--out", file("no/folder")}, "found No such file or directory");
  refuse({"run", file("good"), "--out", file("plain/below")}, "found Not a directory");
  refuse({"run", file("good"), "--out", file(".")}, "found a directory");
  refuse({"run", file("good"), "--out", "/dev/full"}, "found a special file");
  refuse({"run", file("good"), "--out", "/proc/top"}, "expected a file that can be written");
  refuse({"run", file("good"), "--out", file("good")}, "--out: found the trace itself");
  refuse({"run", file("good"), "--scores"}, "--scores: found no --out");
  refuse({"gen", "int", "-o", file("no/folder")}, "found No such file or directory");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(Misuse, FullDisk) {
  const auto small_files_only = [] {
    const ::rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  refuse({"run", file("good"), "--out", file("new")}, "found File too large, expected room for",
         small_files_only);
  refuse({"gen", "int", "-o", file("new")}, "found File too large", small_files_only);
  const auto full_stdout = [] { ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO); };
  for (const Arguments& arguments :
       {Arguments{"info", file("good")}, {"--help"}, {"gen", "int", "--help"}, {"--version"}}) {
    refuse(arguments, "standard output: found No space left on device", full_stdout);
  }
}

TEST_F(Misuse, Generators) {
  const auto gen = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), "gen");
    arguments.insert(arguments.end(), {"-o", file("new")});
    return arguments;
  };
  refuse(gen({"dial", "--values", "band:1"}), "values: found 'band:1', expected band:LO:HI");
  refuse(gen({"dial", "--values", "unknown"}), "values: found 'unknown', expected one of uniform");
  refuse(gen({"dial", "--queries", "-1"}), "--queries: found '-1'");
  refuse(gen({"dial", "--keys", "4294967296"}), "--keys: found '4294967296'");
  refuse(gen({"dial", "--heads", "0"}), "--heads: found '0'");
  refuse(gen({"dial", "--seed", "-1"}), "--seed: found '-1'");
  refuse(gen({"dial", "--windows", "some"}), "--windows: found 'some'");
  refuse(gen({"unknown"}), "found 'unknown', expected one of dial,");
}

/// Waits until `folder` holds more than `files`; false after a minute.
bool grows_beyond(const Folder& folder, std::size_t files) {
  using namespace std::chrono_literals;
  for (int attempt = 0; attempt < 60'000 && folder.num_files() <= files; ++attempt) {
    std::this_thread::sleep_for(1ms);
  }
  return folder.num_files() > files;
}

TEST_F(Misuse, InterruptionLeavesNothing) {
  const std::string trace =
      generate("slow", {"real", "--queries", "256", "--keys", "50000", "--heads", "32"});
  const std::size_t files = folder_.num_files();
  for (const int signal_number : {SIGINT, SIGTERM}) {
    std::thread interrupter;
    const Outcome outcome = run_command(
        {"run", trace, "--out", file("top")}, [] {},
        [&](::pid_t pid) {
          interrupter = std::thread([&, pid] {
            EXPECT_TRUE(grows_beyond(folder_, files));  // the hidden file is there: it computes
            ::kill(pid, signal_number);
          });
        });
    interrupter.join();
    EXPECT_EQ(outcome.code, -1) << outcome.out << outcome.err;
    EXPECT_EQ(folder_.num_files(), files);
  }
}

}  // namespace
}  // namespace dosa::test
