// SPDX-License-Identifier: Apache-2.0
#include "verify.hpp"

#include <fmt/format.h>

#include "device/device.hpp"
#include "device/problem.hpp"
#include "failure.hpp"
#include "io/trace.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

using Found = dosa_cuda_verification;

nlohmann::ordered_json report_json(const VerifyArgs& args, const dosa_problem& problem,
                                   const dosa_options& options, const std::string& device,
                                   const Found& found) {
  return {{"trace", args.engine.trace},
          {"backend", "cuda"},
          {"model", model_on_device(options)},
          {"device", device},
          {"shape", shape_json(problem)},
          {"options", options_json(options)},
          {"identical", found.rows_different == 0},
          {"rows", found.rows},
          {"rows_different", found.rows_different},
          {"first_different", found.first_different},
          {"visible", found.visible},
          {"bounded", found.bounded},
          {"rejected", found.rejected},
          {"violations", found.violations},
          {"min_margin", found.min_margin},
          {"witness", witness_json(found)},
          {"most_used", found.most_used},
          {"most_used_at", {{"row", found.used_row}, {"key", found.used_key}}},
          {"seconds", found.seconds},
          {"version", dosa_version()}};
}

void print_table(const VerifyArgs& args, const dosa_problem& problem, const dosa_options& options,
                 const std::string& device, const Found& found) {
  const auto visible = static_cast<double>(found.visible);
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"trace", args.engine.trace});
  table.add({"shape", shape_text(problem)});
  table.add({"mode", mode_text(options)});
  table.add({"device", device});
  table.skip();
  table.add(
      {"answers",
       found.rows_different == 0
           ? fmt::format("the best keys in all {} rows, ids and score bits", grouped(found.rows))
           : fmt::format("WRONG in {} of {} rows, first in row {}", grouped(found.rows_different),
                         grouped(found.rows), found.first_different)});
  table.add({"visible", fmt::format("{} pairs of a query and a key", grouped(found.visible))});
  table.add({"bounded", fmt::format("{}, {}", grouped(found.bounded),
                                    percent(static_cast<double>(found.bounded), visible))});
  table.add({"rejected", fmt::format("{}, {}, by the K-th score", grouped(found.rejected),
                                     percent(static_cast<double>(found.rejected), visible))});
  table.add({"violations", found.violations == 0
                               ? std::string("none: no key's own score would reject it")
                               : fmt::format("{} keys with a bound BELOW their score",
                                             grouped(found.violations))});
  if (found.witness_row >= 0) table.add({"least margin", witness_text(found)});
  if (found.used_row >= 0) {
    table.add({"allowance needed",
               fmt::format("at most {:.4f} of it, row {}, key {}",
                           static_cast<double>(found.most_used), found.used_row, found.used_key)});
  }
  table.add({"time", duration(found.seconds)});
  fmt::print("{}", table.text());
}

}  // namespace

int verify_on_device(const VerifyArgs& args) {
  const std::string device = require_device();
  const io::Trace trace = io::Trace::open(args.engine.trace);
  const dosa_problem host = args.engine.problem(trace);
  const dosa_options options = args.engine.resolved_for_device();
  std::size_t bytes = 0;
  check(dosa_cuda_workspace_bytes(&host, &options, &bytes));  // refuses what cannot be run
  const DeviceProblem inputs(host);
  Found found{};
  found.struct_size = sizeof found;
  const dosa_status status = dosa_cuda_verify(&inputs.problem(), &options, &found);
  if (status != DOSA_CERTIFICATE) check(status);
  if (args.json) {
    const nlohmann::ordered_json json = report_json(args, host, options, device, found);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print_table(args, host, options, device, found);
  }
  return status == DOSA_OK ? kSuccess : kDifference;
}

}  // namespace dosa::cli
