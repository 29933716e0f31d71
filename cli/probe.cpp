// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "args.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "gpu/probe_report.hpp"

namespace dosa::cli {
namespace {

int probe(const gpu::ProbeOptions& options) {
#ifdef DOSA_CUDA_ENGINE
  return gpu::run_probe(options) == 0 ? kSuccess : kDifference;
#else
  static_cast<void>(options);
  throw Failure("probe: found a build without CUDA, expected one configured with -D DOSA_CUDA=ON");
#endif
}

}  // namespace

void add_probe(CLI::App& app, Action& chosen) {
  constexpr std::int64_t kMostDots = std::int64_t{1} << 48;
  struct Args {
    gpu::ProbeOptions options;
    std::int64_t dots = static_cast<std::int64_t>(gpu::ProbeOptions().dots);
  };
  CLI::App* command = app.add_subcommand(
      "probe", "Compare a GPU's FP8 tensor core with its software model (needs a CUDA build)");
  const auto args = std::make_shared<Args>();
  add_integer(*command, "--dots", args->dots, 1, kMostDots, "Dot products per tile width");
  add_seed(*command, args->options.seed);
  command->add_flag("--search", args->options.search, "Try other models of the adder as well");
  command->add_option("--golden", args->options.golden, "Write operands and result bits to FILE")
      ->type_name("FILE");
  command->add_option("--dump", args->options.dump, "Write raw tiles to FILE")->type_name("FILE");
  command->callback([args, &chosen] {
    args->options.dots = static_cast<std::uint64_t>(args->dots);
    chosen = [args] { return probe(args->options); };
  });
}

}  // namespace dosa::cli
