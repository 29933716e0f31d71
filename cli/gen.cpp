// SPDX-License-Identifier: Apache-2.0
#include "gen.hpp"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>

#include "args.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "io/output_file.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

constexpr std::int64_t kMostExtent = std::numeric_limits<std::int32_t>::max();

std::vector<GenKind> all_kinds() {
  std::vector<GenKind> kinds;
  for (const auto& list : {exact_kinds(), model_kinds()}) {
    kinds.insert(kinds.end(), list.begin(), list.end());
  }
  return kinds;
}

struct GenArgs {
  GenCommon common;
  std::string kind;
  std::string out;
  std::function<Generated(const GenCommon&)> make;
};

int generate(const GenArgs& args) {
  io::OutputFile output(args.out);
  Generated made = args.make(args.common);
  made.metadata["kind"] = args.kind;
  made.metadata["seed"] = std::to_string(args.common.seed);
  std::uint64_t bytes = 0;
  for (const io::Tensor& tensor : made.data.tensors()) {
    bytes += tensor.data.size();
  }
  output.commit(made.data.tensors(), made.metadata);
  fmt::print("{}: {} rows, {} keys, {} heads of {}, {}\n", args.out, grouped(made.data.num_queries),
             grouped(made.data.num_keys), made.data.num_heads, made.data.head_dim,
             bytes_text(bytes));
  return kSuccess;
}

}  // namespace

void add_gen(CLI::App& app, Action& chosen) {
  CLI::App* gen = app.add_subcommand("gen", "Make a trace");
  gen->require_subcommand(1);
  for (const GenKind& kind : all_kinds()) {
    CLI::App* command = gen->add_subcommand(kind.name, kind.help);
    const auto args = std::make_shared<GenArgs>();
    args->kind = kind.name;
    add_integer(*command, "--queries", args->common.queries, 0, kMostExtent, "Query rows, Q");
    add_integer(*command, "--keys", args->common.keys, 0, kMostExtent, "Keys, N");
    add_seed(*command, args->common.seed);
    command->add_option("-o,--out", args->out, "The safetensors file to write")
        ->required()
        ->type_name("FILE");
    args->make = kind.declare(*command);
    command->callback([args, &chosen] { chosen = [args] { return generate(*args); }; });
  }
}

}  // namespace dosa::cli
