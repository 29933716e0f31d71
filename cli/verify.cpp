// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "device/device.hpp"
#include "engine_options.hpp"
#include "failure.hpp"
#include "io/trace.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "verify.hpp"

namespace dosa::cli {
namespace {

nlohmann::ordered_json report_json(const VerifyArgs& args, const dosa_problem& problem,
                                   const dosa_options& options, const dosa_verification& found) {
  return {{"trace", args.engine.trace},
          {"model", "ieee"},
          {"shape", shape_json(problem)},
          {"options", options_json(options)},
          {"simd", dosa_simd_target()},
          {"identical", found.rows_different == 0},
          {"rows", found.rows},
          {"rows_different", found.rows_different},
          {"first_different", found.first_different},
          {"rejected", found.rejected},
          {"violations", found.violations},
          {"min_margin", found.min_margin},
          {"witness", witness_json(found)},
          {"visible", found.stats.visible},
          {"fully_scored", found.stats.fully_scored},
          {"seconds", found.stats.seconds},
          {"version", dosa_version()}};
}

void print_table(const VerifyArgs& args, const dosa_problem& problem, const dosa_options& options,
                 const dosa_verification& found) {
  const auto visible = static_cast<double>(found.stats.visible);
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"trace", args.engine.trace});
  table.add({"shape", shape_text(problem)});
  table.add({"mode", fmt::format("{}, {}, {} threads", mode_text(options), dosa_simd_target(),
                                 options.threads)});
  table.skip();
  table.add({"answers", found.rows_different == 0
                            ? fmt::format("identical in all {} rows, ids and scores, bit for bit",
                                          grouped(found.rows))
                            : fmt::format("DIFFERENT in {} of {} rows, first in row {}",
                                          grouped(found.rows_different), grouped(found.rows),
                                          found.first_different)});
  table.add({"rejected", fmt::format("{} pairs of a query and a key, {} of those visible",
                                     grouped(found.rejected),
                                     percent(static_cast<double>(found.rejected), visible))});
  table.add(
      {"violations", found.violations == 0
                         ? std::string("none: every rejected key's bound is at least its score")
                         : fmt::format("{} rejected keys with a bound BELOW their score",
                                       grouped(found.violations))});
  if (found.witness_row >= 0) table.add({"least margin", witness_text(found)});
  table.add({"time", duration(found.stats.seconds) + " for the audited run"});
  fmt::print("{}", table.text());
}

int verify(const VerifyArgs& args) {
  const io::Trace trace = io::Trace::open(args.engine.trace);
  const dosa_problem problem = args.engine.problem(trace);
  dosa_options options = args.engine.resolved();
  dosa_verification found{};
  found.struct_size = sizeof found;
  dosa_status status = DOSA_OK;
  {
    Progress progress("verify", problem.num_queries);
    progress.attach(options);
    status = dosa_verify(&problem, &options, &found);
  }
  if (status != DOSA_CERTIFICATE) {
    check(status);
  }
  if (args.json) {
    const nlohmann::ordered_json json = report_json(args, problem, options, found);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print_table(args, problem, options, found);
  }
  const bool good = status == DOSA_OK && found.rows_different == 0 && found.violations == 0;
  return good ? kSuccess : kDifference;
}

}  // namespace

void add_verify(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "verify", "Compare with every key scored, and audit every rejection; exit code 1 if wrong");
  const auto args = std::make_shared<VerifyArgs>();
  add_engine_options(*command, args->engine);
  add_backend(*command, args->engine.backend);
  command->add_flag("--json", args->json, "Print the report as JSON");
  command->callback([args, &chosen] {
    chosen = [args] {
      return args->engine.backend == kCuda ? verify_on_device(*args) : verify(*args);
    };
  });
}

}  // namespace dosa::cli
