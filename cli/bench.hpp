// SPDX-License-Identifier: Apache-2.0
// What `dosa bench` is asked for, whatever the backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_cell.hpp"
#include "study_input.hpp"

namespace dosa::cli {

struct BenchArgs {
  std::vector<std::string> files, specs, modes, peers;
  std::vector<std::int64_t> keys;
  std::vector<std::int64_t> rows = {256};  // groups of 128 on two threads, as in a serving call
  std::vector<int> heads;
  std::int32_t topk = 2048;
  std::int32_t backend = 0;      // Backend
  std::int32_t score_model = 0;  // dosa_score_model, of the device
  std::int32_t phase_calls = 3;  // of each mode, with --backend cuda
  std::string json;
  bench::CellOptions cell;
  bool no_sgemm = false;
  bool no_ceilings = false;  // with --backend cuda
};

/// Whether a mode is asked for: all but `screen` where nothing is.
[[nodiscard]] bool wanted(const BenchArgs& args, const std::string& mode);

/// The lengths at which an input is measured: those asked for that it has, or powers of two and
/// all.
[[nodiscard]] std::vector<std::int64_t> lengths(const BenchArgs& args, std::int64_t keys);

/// Throws: Failure where no input had a length that is asked for, so that `none` was measured
void require_cells(const BenchArgs& args, bool none);

/// Throws: Failure where all retained heads that are asked for are more than an input's `heads`
void require_heads(const BenchArgs& args, int heads);

/// The inputs, made ones at the largest shape that is asked for.  Throws: Failure, io::Error
[[nodiscard]] std::vector<StudySource> sources(const BenchArgs& args);

/// Throws: Failure, io::Error where nothing could be measured or compared
void check_inputs(const BenchArgs& args);

}  // namespace dosa::cli
