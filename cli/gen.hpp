// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "io/trace.hpp"

namespace dosa::cli {

/// The options that every kind of `dosa gen` has.
struct GenCommon {
  std::int64_t queries = 64;
  std::int64_t keys = 16384;
  std::uint64_t seed = 0;
};

/// What a kind makes.
struct Generated {
  io::TraceData data;
  io::Metadata metadata;  // written to the file, beside kind and seed
};

/// One kind of `dosa gen`.
///
/// To add kinds: write cli/gen_NAME.cpp with a function `std::vector<GenKind> NAME_kinds()`,
/// declare it here, and call it in all_kinds() of gen.cpp. --queries, --keys, --seed and -o, the
/// writing of the file and all error reports come from gen.cpp.
struct GenKind {
  std::string name;
  std::string help;
  /// Declares the kind's own options on `command`. Returns what makes the tensors once the command
  /// line is parsed; state of the options is kept alive by capturing a shared_ptr to it.
  std::function<std::function<Generated(const GenCommon&)>(CLI::App& command)> declare;
};

/// What `dosa gen WORDS... -o FILE` would write; `defaults` stand for options that are not named.
/// Throws: Failure for arguments that `dosa gen` would refuse, io::Error for impossible shapes.
[[nodiscard]] Generated generate_from_words(std::vector<std::string> words,
                                            const GenCommon& defaults);

/// Inputs whose scores are known or exact in every order: dial, dial-neg, zero, residue, int, real.
[[nodiscard]] std::vector<GenKind> exact_kinds();

/// Workloads that behave like the published models (docs/workloads.md): glm52, dsv32.
[[nodiscard]] std::vector<GenKind> model_kinds();

}  // namespace dosa::cli
