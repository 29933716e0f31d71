// SPDX-License-Identifier: Apache-2.0
// The timed part of a study: calls of the library on all rows of an input.
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "study_input.hpp"

namespace dosa::cli {

/// One way of calling the library, and what came out.
struct EngineRun {
  std::string name;
  dosa_options options{};
  std::vector<double> seconds = {};  // of every repetition
  dosa_stats stats{};                // of the last one
  bool identical = true;             // ids equal those of every key scored

  [[nodiscard]] double median() const;
  /// Half the distance between the quartiles.
  [[nodiscard]] double spread() const;
};

/// Every key scored, the default, and screening with `retained` heads: the engine's rules, and the
/// paper's full certificate and its four variants, each with a rising and with a fixed threshold.
/// The first is `base`. Repetitions take turns. A full buffer of records is reduced during the call
/// and its time is part of the call; `step` is called after each of them.
[[nodiscard]] std::vector<EngineRun> engine_runs(const StudyInput& input, int retained,
                                                 const dosa_options& common, int repetitions,
                                                 const std::function<void()>& step);

/// How many calls of `step` that makes.
[[nodiscard]] std::int64_t engine_steps(int repetitions);

}  // namespace dosa::cli
