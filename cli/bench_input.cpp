// SPDX-License-Identifier: Apache-2.0
#include "bench_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace dosa::cli {
namespace {

bool names(const std::string& spec, std::string_view option) {
  return (spec + ' ').find(' ' + std::string(option) + ' ') != std::string::npos;
}

/// Options for the parts of the shape that a specification leaves open.
std::string missing_options(const std::string& spec, BenchShape shape) {
  const std::string kind = spec.substr(0, spec.find(' '));
  const bool model = kind == "glm52" || kind == "dsv32";
  std::string options;
  if (!names(spec, "--queries")) options += fmt::format(" --queries {}", shape.rows);
  if (!names(spec, "--keys")) options += fmt::format(" --keys {}", shape.keys);
  if (model && !names(spec, "--stride")) options += " --stride 1";
  if (!model && !names(spec, "--windows")) options += " --windows causal";
  return options;
}

/// The source under the name that it has without `options`.
StudySource renamed(const StudySource& source, const std::string& options) {
  const std::string name = source.name.substr(0, source.name.size() - options.size());
  return {name, [name, load = source.load] {
            StudyInput input = load();
            input.name = name;
            return input;
          }};
}

}  // namespace

std::vector<StudySource> bench_sources(const std::vector<std::string>& files,
                                       const std::vector<std::string>& specs, BenchShape shape,
                                       std::int32_t topk) {
  std::vector<StudySource> sources = study_sources(files, {}, topk);
  for (const std::string& spec : specs) {
    const std::string options = missing_options(spec, shape);
    for (const StudySource& source : study_sources({}, {spec + options}, topk)) {
      sources.push_back(renamed(source, options));
    }
  }
  return sources;
}

}  // namespace dosa::cli
