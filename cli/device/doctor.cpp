// SPDX-License-Identifier: Apache-2.0
#include <dosa/dosa_cuda.h>
#include <fmt/format.h>

#include <array>
#include <vector>

#include "device/device.hpp"
#include "device/problem.hpp"
#include "doctor_system.hpp"
#include "failure.hpp"
#include "io/gen_exact.hpp"

namespace dosa::cli {
namespace {

constexpr int kTopk = 100;

std::vector<io::TraceData> make_problems() {
  std::vector<io::TraceData> problems;
  for (const std::int64_t heads : {32, 64}) {
    io::ExactShape shape;
    shape.num_queries = 70;
    shape.num_keys = 20001;
    shape.num_heads = heads;
    problems.push_back(io::make_int(shape));
    problems.push_back(io::make_real(shape));
    io::set_windows(problems.back(), io::Windows::kCausal, 0);
  }
  return problems;
}

}  // namespace

DeviceCheck check_device() {
  DeviceCheck check;
  check.ran = true;
  for (const io::TraceData& made : make_problems()) {
    dosa_problem host = made.problem();
    host.topk = kTopk;
    const DeviceProblem inputs(host);
    for (const dosa_mode mode : {DOSA_MODE_BASE, DOSA_MODE_FULL, DOSA_MODE_AUTO, DOSA_MODE_DOSA}) {
      dosa_options options{};
      cli::check(dosa_cuda_options_init(&options, sizeof options));
      options.mode = mode;
      dosa_cuda_verification found{};
      found.struct_size = sizeof found;
      const dosa_status status = dosa_cuda_verify(&inputs.problem(), &options, &found);
      if (status != DOSA_CERTIFICATE) cli::check(status);
      ++check.calls;
      check.rows += found.rows;
      check.bounded += found.bounded;
      if (status != DOSA_OK && check.difference.empty()) {
        check.difference = fmt::format("problem {}, mode {}: {}", check.calls,
                                       static_cast<int>(mode), dosa_last_error());
      }
    }
  }
  return check;
}

}  // namespace dosa::cli
