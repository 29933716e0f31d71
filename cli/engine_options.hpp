// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/trace.hpp"

namespace dosa::cli {

/// What the commands that run the engine have in common: a trace, K and the engine's options.
struct EngineArgs {
  EngineArgs();

  std::string trace;
  std::int32_t topk = 2048;
  std::int64_t workspace_mib = 0;
  bool no_projection = false;
  std::int32_t backend = 0;  // Backend
  dosa_options options{};

  /// The options as the library takes them; the number of threads is filled in.
  [[nodiscard]] dosa_options resolved() const;

  /// The same for the device, which has a workspace limit of its own where none was asked for.
  [[nodiscard]] dosa_options resolved_for_device() const;

  /// The trace's problem with K set.  Throws: Failure where more heads are to be retained than are.
  [[nodiscard]] dosa_problem problem(const io::Trace& from) const;
};

/// Which engine answers.
enum Backend : std::int32_t { kCpu, kCuda };

/// Declares --backend.
void add_backend(CLI::App& app, std::int32_t& backend);

/// Declares --score-model, a dosa_score_model.
void add_score_model(CLI::App& app, std::int32_t& model);

/// Declares TRACE and the options; `args` must outlive the parsing.
void add_engine_options(CLI::App& app, EngineArgs& args);

/// {"mode": "auto", "threshold": "rising", ...}: words as on the command line.
[[nodiscard]] nlohmann::ordered_json options_json(const dosa_options& options);
/// The words of it that a result file carries.
[[nodiscard]] std::string_view form_name(const dosa_options& options);
[[nodiscard]] std::string_view order_name(const dosa_options& options);

/// "auto, rising threshold".
[[nodiscard]] std::string mode_text(const dosa_options& options);

/// {"queries": Q, "keys": N, "heads": H, "head_dim": D, "topk": K}.
[[nodiscard]] nlohmann::ordered_json shape_json(const dosa_problem& problem);

/// "64 rows, 16,384 keys, 32 heads of 128, K = 2,048".
[[nodiscard]] std::string shape_text(const dosa_problem& problem);

/// The workspace that the call needs.  Throws: Failure for anything the library refuses.
[[nodiscard]] std::vector<std::byte> make_workspace(const dosa_problem& problem,
                                                    const dosa_options& options);

}  // namespace dosa::cli
