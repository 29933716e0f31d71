// SPDX-License-Identifier: Apache-2.0
// What a study looks at: files and made workloads, loaded one at a time.
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dosa::cli {

/// An indexer's inputs with what is known about where they come from.
struct StudyInput {
  std::string name;    // the file's, or the arguments of `dosa gen`
  std::string source;  // one line that says what it is: a trace of what, a generator of what kind
  std::string group;   // inputs that are averaged together: "glm52 --rows 8", "trace, H = 32"
  std::string domain;  // empty: not stated
  int layer = -1;      // -1: not stated
  int variant = 0;     // screening rows that a generated workload was calibrated for; 0: none
  std::uint64_t seed = 0;  // of a generated workload
  dosa_problem problem{};
  std::shared_ptr<const void> owner;  // of what the problem points to
};

/// An input that is not loaded yet.
struct StudySource {
  std::string name;
  std::function<StudyInput()> load;  // Throws: Failure, io::Error
};

/// Every file and every workload that a specification stands for. A specification is what follows
/// `dosa gen`; in its values for --layer, --rows, --seed, --keys and --domain, "0-3" and "0,2"
/// stand for several workloads. Options that are not named: 65 rows 64 tokens apart (the last 4,096
/// tokens), 131,072 keys, seed 2001.
/// Throws: Failure where a specification cannot be read.
[[nodiscard]] std::vector<StudySource> study_sources(const std::vector<std::string>& files,
                                                     const std::vector<std::string>& specs,
                                                     std::int32_t topk);

}  // namespace dosa::cli
