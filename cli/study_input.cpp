// SPDX-License-Identifier: Apache-2.0
#include "study_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

#include "failure.hpp"
#include "gen.hpp"
#include "io/error.hpp"
#include "io/trace.hpp"

namespace dosa::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 5> kListed = {"--layer", "--rows", "--seed", "--keys",
                                                     "--domain"};
constexpr std::uint64_t kStudySeed = 2001;  // not used to calibrate (docs/workloads.md)
constexpr std::int64_t kStudyQueries = 65;
constexpr std::int64_t kStudyKeys = 131072;
constexpr std::int64_t kMostOfRange = 1000;

bool parse_number(std::string_view text, std::int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end && value >= 0;
}

/// "0-2,5" as 0, 1, 2, 5; anything that is no range stands for itself.
Words expand(const std::string& text) {
  Words values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t dash = part.find('-');
    std::int64_t first = 0;
    std::int64_t last = 0;
    const bool range = dash != std::string::npos &&
                       parse_number(std::string_view(part).substr(0, dash), first) &&
                       parse_number(std::string_view(part).substr(dash + 1), last);
    if (!range) {
      values.push_back(part);
      continue;
    }
    if (last < first || last - first >= kMostOfRange) {
      throw Failure("--gen", io::printable(part), "a range from a smaller to a larger number");
    }
    for (std::int64_t value = first; value <= last; ++value) {
      values.push_back(std::to_string(value));
    }
  }
  return values.empty() ? Words{text} : values;
}

/// All combinations of the values of the listed options.
std::vector<Words> combinations(const std::string& spec) {
  std::vector<Words> result = {{}};
  std::istringstream words(spec);
  std::string option;
  for (std::string word; words >> word;) {
    const bool listed = std::find(kListed.begin(), kListed.end(), option) != kListed.end();
    const Words values = listed ? expand(word) : Words{word};
    std::vector<Words> longer;
    for (const Words& begun : result) {
      for (const std::string& value : values) {
        longer.push_back(begun);
        longer.back().push_back(value);
      }
    }
    result = std::move(longer);
    option = word;
  }
  return result;
}

bool names(const Words& words, std::string_view option) {
  return std::find(words.begin(), words.end(), option) != words.end();
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string metadata_text(const io::Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? "" : found->second;
}

/// What io::printable() puts between its quotes.
std::string unquoted(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == '\'' && text.back() == '\'';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

/// What the metadata say about an input's origin: those of `dosa gen` or those of a trace maker.
void describe(const io::Metadata& metadata, StudyInput& input) {
  const std::string kind = metadata_text(metadata, "kind");
  std::int64_t number = 0;
  if (parse_number(metadata_text(metadata, "layer"), number)) {
    input.layer = static_cast<int>(number);
  }
  if (parse_number(metadata_text(metadata, "rows"), number)) {
    input.variant = static_cast<int>(number);
  }
  if (parse_number(metadata_text(metadata, "seed"), number)) {
    input.seed = static_cast<std::uint64_t>(number);
  }
  input.domain = metadata_text(metadata, "domain");
  if (!kind.empty()) {
    const bool calibrated = kind == "glm52";
    input.source =
        calibrated ? "generator calibrated to statistics published for GLM-5.2"
                   : (kind == "dsv32" ? "generator, an extrapolation to 64 heads; nothing published"
                                      : "generator of inputs with known scores, " + kind);
    input.group = kind + (input.variant > 0 ? fmt::format(" --rows {}", input.variant) : "");
    return;
  }
  const std::string source = metadata_text(metadata, "source");
  input.source = source.empty() ? "a file that does not say where it is from"
                                : "trace: " + unquoted(io::printable(source));
  input.group = fmt::format("trace, H = {}", input.problem.num_heads);
  std::smatch match;
  static const std::regex kWords("held-out (\\w+) text, layer (\\d+)");
  if (std::regex_search(source, match, kWords)) {
    input.domain = match[1].str();
    input.layer = parse_number(match[2].str(), number) ? static_cast<int>(number) : -1;
  }
}

StudyInput load_file(const std::string& path, std::int32_t topk) {
  const auto trace = std::make_shared<io::Trace>(io::Trace::open(path));
  StudyInput input;
  input.name = path.substr(path.rfind('/') + 1);
  input.problem = trace->problem();
  input.problem.topk = topk;
  input.owner = trace;
  describe(trace->file().metadata(), input);
  return input;
}

StudyInput load_made(const std::string& name, const Words& words, std::int32_t topk) {
  const auto made = std::make_shared<Generated>(
      generate_from_words(words, {kStudyQueries, kStudyKeys, kStudySeed}));
  StudyInput input;
  input.name = name;
  input.problem = made->data.problem();
  input.problem.topk = topk;
  input.owner = made;
  describe(made->metadata, input);
  return input;
}

}  // namespace

std::vector<StudySource> study_sources(const std::vector<std::string>& files,
                                       const std::vector<std::string>& specs, std::int32_t topk) {
  std::vector<StudySource> sources;
  sources.reserve(files.size() + specs.size());
  for (const std::string& file : files) {
    sources.push_back({file, [=] { return load_file(file, topk); }});
  }
  for (const std::string& spec : specs) {
    for (Words& words : combinations(spec)) {
      const bool model = names(words, "glm52") || names(words, "dsv32");
      const std::string name = joined(words);
      if (model && !names(words, "--stride") && !names(words, "--queries")) {
        words.insert(words.end(), {"--stride", "64"});
      }
      sources.push_back({name, [=] { return load_made(name, words, topk); }});
    }
  }
  return sources;
}

}  // namespace dosa::cli
