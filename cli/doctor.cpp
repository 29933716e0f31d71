// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "doctor_check.hpp"
#include "doctor_system.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

constexpr const char* kSend =
    "the output of `dosa doctor --json`, the command line or call with its options, the one-line "
    "error if there was one, and the input as a file that `dosa verify` can run";

struct Report {
  std::int32_t threads = 0;  // that `dosa run` would use
  SystemFacts system;
  DeviceFacts devices;
  CheckReport check;
  DeviceCheck device_check;
  std::vector<std::string> advice;  // what works, but not as well as it could

  [[nodiscard]] bool exact() const {
    return check.difference.empty() && device_check.difference.empty();
  }
};

/// Whatever costs speed and can be changed by the reader.
std::vector<std::string> advice_on(const Report& report) {
  std::vector<std::string> advice;
  const SystemFacts& system = report.system;
  if (std::string_view(dosa_simd_target()) == "scalar") {
    advice.emplace_back("scalar code is in use, many times slower: it takes AVX2 to do better");
  }
  const bool limited = system.quota > 0 && system.quota < report.threads;
  if (report.threads > system.usable || limited) {
    advice.push_back(fmt::format(
        "{} threads share {:.3g} processors: set OMP_NUM_THREADS or --threads to that many",
        report.threads, limited ? std::min<double>(system.quota, system.usable) : system.usable));
  }
  if (report.threads < system.usable) {
    advice.push_back(fmt::format("{} threads on {} processors: OMP_NUM_THREADS asks for no more",
                                 report.threads, system.usable));
  }
  if (report.devices.built && report.devices.usable.empty()) {
    advice.emplace_back(
        "this build has the device engine, but no device of sm_80 or later was found");
  }
  if (report.check.screened == 0) {
    advice.emplace_back("no key was screened during the check: that part was not tested");
  }
  return advice;
}

nlohmann::ordered_json report_json(const Report& report) {
  const SystemFacts& system = report.system;
  const DeviceFacts& devices = report.devices;
  return {{"version", dosa_version()},
          {"build", build_text()},
          {"system", system.system},
          {"processor", system.processor},
          {"processors", system.processors},
          {"usable_processors", system.usable},
          {"processor_quota", system.quota},
          {"threads", report.threads},
          {"simd", dosa_simd_target()},
          {"features", {{"present", system.present}, {"missing", system.missing}}},
          {"memory_bytes", system.memory},
          {"memory_available_bytes", system.available},
          {"memory_limit_bytes", system.memory_limit},
          {"device",
           {{"built", devices.built},
            {"driver", devices.driver},
            {"runtime", devices.runtime},
            {"failure", devices.failure},
            {"usable", devices.usable},
            {"others", devices.others},
            {"check",
             {{"ran", report.device_check.ran},
              {"difference", report.device_check.difference},
              {"calls", report.device_check.calls},
              {"rows", report.device_check.rows},
              {"bounded", report.device_check.bounded}}}}},
          {"check",
           {{"exact", report.check.difference.empty()},
            {"model", "ieee"},
            {"difference", report.check.difference},
            {"problems", report.check.problems},
            {"calls", report.check.calls},
            {"rows", report.check.rows},
            {"screened", report.check.screened},
            {"seconds", report.check.seconds}}},
          {"advice", report.advice},
          {"send", kSend}};
}

std::string memory_text(const SystemFacts& system) {
  if (system.memory == 0) return "unknown";
  std::string text =
      fmt::format("{}, {} available", bytes_text(static_cast<std::uint64_t>(system.memory)),
                  bytes_text(static_cast<std::uint64_t>(system.available)));
  if (system.memory_limit > 0) {
    text += ", limited to " + bytes_text(static_cast<std::uint64_t>(system.memory_limit));
  }
  return text;
}

std::string processors_text(const SystemFacts& system) {
  std::string text = system.usable == system.processors
                         ? grouped(system.processors)
                         : fmt::format("{} of {} usable", system.usable, system.processors);
  if (system.quota > 0) text += fmt::format(", time of {:.3g}", system.quota);
  return text;
}

std::string devices_text(const DeviceFacts& devices) {
  const std::string driver = devices.driver.empty() ? "no driver" : devices.driver;
  if (!devices.built) return "not in this build (DOSA_CUDA); " + driver;
  const std::string found = devices.usable.empty()
                                ? std::string("no device of sm_80 or later")
                                : fmt::format("{}", fmt::join(devices.usable, "; "));
  return fmt::format("{}; CUDA {}; {}{}{}", found, devices.runtime, driver,
                     devices.failure.empty() ? "" : "; ", devices.failure);
}

void print_report(const Report& report) {
  const SystemFacts& system = report.system;
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"version", fmt::format("{}, {}", dosa_version(), build_text())});
  table.add({"system", system.system});
  table.add({"processor", system.processor.empty() ? "unknown" : system.processor});
  table.add({"processors", processors_text(system)});
  table.add({"threads", fmt::format("{}", report.threads)});
  table.add({"instructions", dosa_simd_target()});
  table.add({"features", fmt::format("{}", fmt::join(system.present, " "))});
  if (!system.missing.empty()) {
    table.add({"", fmt::format("without {}", fmt::join(system.missing, " "))});
  }
  table.add({"memory", memory_text(system)});
  table.add({"device engine", devices_text(report.devices)});
  table.skip();
  const CheckReport& check = report.check;
  table.add({"exactness", check.difference.empty()
                              ? "every id and score equals a plain computation's"
                              : "WRONG: first in " + check.difference});
  table.add(
      {"", fmt::format("{} problems, {} calls in every mode, {} rows, {} screened pairs, {}",
                       check.problems, check.calls, grouped(check.rows),
                       scaled(static_cast<double>(check.screened)), duration(check.seconds))});
  if (const DeviceCheck& device = report.device_check; device.ran) {
    table.add({"on the device", device.difference.empty()
                                    ? "every id is that of every key scored, no bound is too low"
                                    : "WRONG: first in " + device.difference});
    table.add({"", fmt::format("{} calls, {} rows, {} bounds", device.calls, grouped(device.rows),
                               scaled(static_cast<double>(device.bounded)))});
  }
  fmt::print("{}\n", table.text());
  for (const std::string& line : report.advice) fmt::print("note: {}\n", line);
  fmt::print("In a report of a fault, send {}.\n", kSend);
}

int doctor(bool json) {
  Report report;
  report.threads = EngineArgs().resolved().threads;
  report.system = look_at_system();
  report.devices = look_at_devices();
  report.check = check_exactness(report.threads);
  if (!report.devices.usable.empty()) report.device_check = check_device();
  report.advice = advice_on(report);
  if (json) {
    constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
    fmt::print("{}\n", report_json(report).dump(2, ' ', false, kReplace));
  } else {
    print_report(report);
  }
  return report.exact() ? kSuccess : kDifference;
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Describe this machine and check answers on it; exit code 1 if one is wrong");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print the report as JSON");
  command->callback([json, &chosen] { chosen = [json] { return doctor(*json); }; });
}

}  // namespace dosa::cli
