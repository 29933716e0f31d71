// SPDX-License-Identifier: Apache-2.0
#include "gen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "args.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "io/error.hpp"
#include "io/output_file.hpp"
#include "parse_error.hpp"
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

Generated make(const GenArgs& args) {
  Generated made = args.make(args.common);
  made.metadata["kind"] = args.kind;
  made.metadata["seed"] = std::to_string(args.common.seed);
  return made;
}

int generate(const GenArgs& args) {
  io::OutputFile output(args.out);
  const Generated made = make(args);
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

using Chosen = std::function<void(CLI::App& command, const std::shared_ptr<GenArgs>& args)>;

/// Declares all kinds below `gen`; `finish` adds what is not common to all uses.
void declare_kinds(CLI::App& gen, const GenCommon& defaults, const Chosen& finish) {
  gen.require_subcommand(1);
  for (const GenKind& kind : all_kinds()) {
    CLI::App* command = gen.add_subcommand(kind.name, kind.help);
    const auto args = std::make_shared<GenArgs>();
    args->kind = kind.name;
    args->common = defaults;
    add_integer(*command, "--queries", args->common.queries, 0, kMostExtent, "Query rows, Q");
    add_integer(*command, "--keys", args->common.keys, 0, kMostExtent, "Keys, N");
    add_seed(*command, args->common.seed);
    args->make = kind.declare(*command);
    finish(*command, args);
  }
}

}  // namespace

Generated generate_from_words(std::vector<std::string> words, const GenCommon& defaults) {
  CLI::App gen("Make a trace", "dosa gen");
  std::shared_ptr<GenArgs> chosen;
  declare_kinds(gen, defaults, [&](CLI::App& command, const std::shared_ptr<GenArgs>& args) {
    command.callback([&chosen, args] { chosen = args; });
  });
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    gen.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    constexpr std::string_view kWhat = "arguments: ";  // here they are the option's value
    const std::string line = parse_line(gen, error);
    throw Failure("--gen: " + line.substr(line.rfind(kWhat, 0) == 0 ? kWhat.size() : 0));
  }
  return make(*chosen);
}

void add_gen(CLI::App& app, Action& chosen) {
  CLI::App* gen = app.add_subcommand("gen", "Make a trace");
  declare_kinds(*gen, {}, [&](CLI::App& command, const std::shared_ptr<GenArgs>& args) {
    command.add_option("-o,--out", args->out, "The safetensors file to write")
        ->required()
        ->type_name("FILE");
    command.callback([args, &chosen] { chosen = [args] { return generate(*args); }; });
  });
}

}  // namespace dosa::cli
