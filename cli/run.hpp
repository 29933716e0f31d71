// SPDX-License-Identifier: Apache-2.0
// What `dosa run` does alike on every backend: its arguments and its output file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_options.hpp"
#include "io/output_file.hpp"

namespace dosa::cli {

struct RunArgs {
  EngineArgs engine;
  std::string out;
  bool scores = false;
  bool json = false;
};

/// Selected ids and their scores, (Q, K) each; no scores where none were asked for.
struct Selection {
  std::vector<std::int32_t> indices;
  std::vector<float> scores;
};

/// Opens the output, so that a bad name or a full disk shows before anything is computed; null
/// where none is asked for.  Throws: Failure, io::Error.
[[nodiscard]] std::unique_ptr<io::OutputFile> open_output(const RunArgs& args,
                                                          const dosa_problem& problem);

/// Writes the answer; the file appears complete or not at all.
void commit_output(io::OutputFile& output, const RunArgs& args, const dosa_problem& problem,
                   const dosa_options& options, const char* model, const Selection& answer);

}  // namespace dosa::cli
