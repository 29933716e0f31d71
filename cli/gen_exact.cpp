// SPDX-License-Identifier: Apache-2.0
#include <dosa/dosa.h>
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>

#include "args.hpp"
#include "gen.hpp"
#include "io/gen_exact.hpp"

namespace dosa::cli {
namespace {

constexpr std::array<Choice, 3> kWindows = {
    {{"full", static_cast<std::int32_t>(io::Windows::kFull)},
     {"causal", static_cast<std::int32_t>(io::Windows::kCausal)},
     {"sliding", static_cast<std::int32_t>(io::Windows::kSliding)}}};

struct ExactArgs {
  std::int64_t heads = 32;
  std::int64_t dim = 128;
  std::int32_t windows = static_cast<std::int32_t>(io::Windows::kFull);
  std::int64_t width = 4096;
  std::string values = "uniform";
  std::int64_t winners = 0;
};

using Make = std::function<io::TraceData(const io::ExactShape&, const ExactArgs&)>;
using Declare = std::function<void(CLI::App&, ExactArgs&)>;

void add_shape(CLI::App& command, ExactArgs& args) {
  add_integer(command, "--heads", args.heads, 1, DOSA_MAX_HEADS, "Heads, H");
  add_multiple(command, "--dim", args.dim, 16, DOSA_MAX_HEAD_DIM, "Head dimension, D");
  add_choice(command, "--windows", kWindows, args.windows,
             "Rows see all keys; those before them; or the last of those");
  add_integer(command, "--width", args.width, 0, std::numeric_limits<std::int32_t>::max(),
              "Keys seen with --windows sliding");
}

void add_values(CLI::App& command, ExactArgs& args) {
  std::string list = "The N values of the keys:";
  for (const io::DialValues& values : io::dial_values()) {
    const std::string spec =
        fmt::format("{}{}{}", values.name, values.parameters.empty() ? "" : ":", values.parameters);
    list += fmt::format("\n  {:<16} {}", spec, values.what);
  }
  command.add_option("--values", args.values, list)->type_name("SPEC")->default_str(args.values);
}

GenKind kind(std::string name, std::string help, const Declare& declare_own, const Make& make) {
  const auto declare = [=](CLI::App& command) {
    const auto args = std::make_shared<ExactArgs>();
    add_shape(command, *args);
    if (declare_own) {
      declare_own(command, *args);
    }
    return [=](const GenCommon& common) {
      const io::ExactShape shape{common.queries, common.keys, args->heads, args->dim, common.seed};
      Generated made{make(shape, *args), {}};
      io::set_windows(made.data, static_cast<io::Windows>(args->windows), args->width);
      return made;
    };
  };
  return {std::move(name), std::move(help), declare};
}

io::TraceData dial(const io::ExactShape& shape, const ExactArgs& args, float weight) {
  return io::make_dial(shape, io::make_dial_values(args.values, shape.num_keys, shape.seed),
                       weight);
}

}  // namespace

std::vector<GenKind> exact_kinds() {
  using io::ExactShape;
  return {
      kind("dial", "Scores that are the given values, exactly", add_values,
           [](const ExactShape& shape, const ExactArgs& args) { return dial(shape, args, 1.0F); }),
      kind("dial-neg", "Scores that are the given values with a minus sign", add_values,
           [](const ExactShape& shape, const ExactArgs& args) { return dial(shape, args, -1.0F); }),
      kind(
          "zero", "Scores that are all zero, but for some winners",
          [](CLI::App& command, ExactArgs& args) {
            add_integer(command, "--winners", args.winners, 0,
                        std::numeric_limits<std::int32_t>::max(), "Keys with scores 1, 2, 3, ...");
          },
          [](const ExactShape& shape, const ExactArgs& args) {
            return io::make_zero(shape, args.winners);
          }),
      kind("residue", "Score 1 where key and row have the same remainder modulo D, else 0", nullptr,
           [](const ExactShape& shape, const ExactArgs&) { return io::make_residue(shape); }),
      kind("int", "Small integers: every order of summing gives the same bits; many ties", nullptr,
           [](const ExactShape& shape, const ExactArgs&) { return io::make_int(shape); }),
      kind("real", "Random codes, weights and scales: sums depend on their order", nullptr,
           [](const ExactShape& shape, const ExactArgs&) { return io::make_real(shape); }),
  };
}

}  // namespace dosa::cli
