// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dosa::cli {

/// One word that an option accepts, and what it stands for.
struct Choice {
  std::string_view name;
  std::int32_t value;
};
using Choices = std::span<const Choice>;

/// The word that stands for `value`.
[[nodiscard]] std::string_view choice_name(Choices choices, std::int32_t value);

/// An option that takes one of the words. Its default is what `target` holds now.
/// While parsing throws: Failure naming the option, what was found and what is accepted.
CLI::Option* add_choice(CLI::App& app, const std::string& flags, Choices choices,
                        std::int32_t& target, const std::string& help);

/// An option that takes a whole number in [least, most].
CLI::Option* add_integer(CLI::App& app, const std::string& flags, std::int64_t& target,
                         std::int64_t least, std::int64_t most, const std::string& help);
CLI::Option* add_integer(CLI::App& app, const std::string& flags, std::int32_t& target,
                         std::int64_t least, std::int64_t most, const std::string& help);

/// An option that takes a multiple of `step`, up to `most`.
CLI::Option* add_multiple(CLI::App& app, const std::string& flags, std::int64_t& target,
                          std::int64_t step, std::int64_t most, const std::string& help);

/// An option that takes whole numbers in [least, most], separated by commas.
CLI::Option* add_integers(CLI::App& app, const std::string& flags,
                          std::vector<std::int64_t>& target, std::int64_t least, std::int64_t most,
                          const std::string& help);
CLI::Option* add_integers(CLI::App& app, const std::string& flags, std::vector<int>& target,
                          std::int64_t least, std::int64_t most, const std::string& help);

/// An option that takes some of the words, separated by commas.
CLI::Option* add_words(CLI::App& app, const std::string& flags,
                       const std::vector<std::string>& words, std::vector<std::string>& target,
                       const std::string& help);

/// An option that takes a number of seconds, 0 or more.
CLI::Option* add_seconds(CLI::App& app, const std::string& flags, double& target,
                         const std::string& help);

CLI::Option* add_seed(CLI::App& app, std::uint64_t& target);

/// A file that is read.
CLI::Option* add_input(CLI::App& app, std::string& target, const std::string& name,
                       const std::string& help);

}  // namespace dosa::cli
