// SPDX-License-Identifier: Apache-2.0
#include "args.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "failure.hpp"
#include "io/error.hpp"

namespace dosa::cli {
namespace {

/// The name to show in messages: "-k,--topk" is shown as its last form.
std::string shown_name(const std::string& flags) { return flags.substr(flags.rfind(',') + 1); }

std::string joined(Choices choices, std::string_view separator) {
  std::string text;
  for (const Choice& choice : choices) {
    text.append(text.empty() ? "" : separator).append(choice.name);
  }
  return text;
}

template <typename Integer>
Integer parse_integer(const std::string& name, const std::string& text, Integer least,
                      Integer most) {
  Integer value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value < least || value > most) {
    throw Failure(name, io::printable(text),
                  fmt::format("a whole number from {} to {}", least, most));
  }
  return value;
}

template <typename Target>
CLI::Option* add_integer_of(CLI::App& app, const std::string& flags, Target& target,
                            std::int64_t least, std::int64_t most, const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    target = static_cast<Target>(parse_integer(shown_name(flags), text, least, most));
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name("INT")->default_str(std::to_string(target));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char letter : text) {
    if (letter == ',') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

template <typename Target>
CLI::Option* add_integers_of(CLI::App& app, const std::string& flags, std::vector<Target>& target,
                             std::int64_t least, std::int64_t most, const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    target.clear();
    for (const std::string& part : split(text)) {
      target.push_back(static_cast<Target>(parse_integer(shown_name(flags), part, least, most)));
    }
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name("INT,...")->default_str(fmt::format("{}", fmt::join(target, ",")));
}

}  // namespace

std::string_view choice_name(Choices choices, std::int32_t value) {
  for (const Choice& choice : choices) {
    if (choice.value == value) {
      return choice.name;
    }
  }
  return "?";
}

CLI::Option* add_choice(CLI::App& app, const std::string& flags, Choices choices,
                        std::int32_t& target, const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    for (const Choice& choice : choices) {
      if (choice.name == text) {
        target = choice.value;
        return;
      }
    }
    throw Failure(shown_name(flags), io::printable(text), "one of " + joined(choices, ", "));
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name(joined(choices, "|"))
      ->default_str(std::string(choice_name(choices, target)));
}

CLI::Option* add_integer(CLI::App& app, const std::string& flags, std::int64_t& target,
                         std::int64_t least, std::int64_t most, const std::string& help) {
  return add_integer_of(app, flags, target, least, most, help);
}

CLI::Option* add_integer(CLI::App& app, const std::string& flags, std::int32_t& target,
                         std::int64_t least, std::int64_t most, const std::string& help) {
  return add_integer_of(app, flags, target, least, most, help);
}

CLI::Option* add_multiple(CLI::App& app, const std::string& flags, std::int64_t& target,
                          std::int64_t step, std::int64_t most, const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    const std::string name = shown_name(flags);
    target = parse_integer(name, text, step, most);
    if (target % step != 0) {
      throw Failure(name, text, fmt::format("a multiple of {}, up to {}", step, most));
    }
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name("INT")->default_str(std::to_string(target));
}

CLI::Option* add_integers(CLI::App& app, const std::string& flags,
                          std::vector<std::int64_t>& target, std::int64_t least, std::int64_t most,
                          const std::string& help) {
  return add_integers_of(app, flags, target, least, most, help);
}

CLI::Option* add_integers(CLI::App& app, const std::string& flags, std::vector<int>& target,
                          std::int64_t least, std::int64_t most, const std::string& help) {
  return add_integers_of(app, flags, target, least, most, help);
}

CLI::Option* add_words(CLI::App& app, const std::string& flags,
                       const std::vector<std::string>& words, std::vector<std::string>& target,
                       const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    target = split(text);
    for (const std::string& word : target) {
      if (std::find(words.begin(), words.end(), word) == words.end()) {
        throw Failure(shown_name(flags), io::printable(word),
                      fmt::format("some of {}", fmt::join(words, ", ")));
      }
    }
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name(fmt::format("{},...", fmt::join(words, "|")));
}

CLI::Option* add_seconds(CLI::App& app, const std::string& flags, double& target,
                         const std::string& help) {
  const std::function<void(const std::string&)> parse = [=, &target](const std::string& text) {
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, target);
    if (error != std::errc() || end != last || !(target >= 0) || std::isinf(target)) {
      throw Failure(shown_name(flags), io::printable(text), "seconds, 0 or more");
    }
  };
  CLI::Option* option = app.add_option_function<std::string>(flags, parse, help);
  return option->type_name("SECONDS")->default_str(fmt::format("{}", target));
}

CLI::Option* add_seed(CLI::App& app, std::uint64_t& target) {
  const std::function<void(const std::string&)> parse = [&target](const std::string& text) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    target = parse_integer<std::uint64_t>("--seed", text, 0, kMost);
  };
  CLI::Option* option = app.add_option_function<std::string>(
      "--seed", parse, "Same seed, same bytes, on every machine");
  return option->type_name("INT")->default_str(std::to_string(target));
}

CLI::Option* add_input(CLI::App& app, std::string& target, const std::string& name,
                       const std::string& help) {
  return app.add_option(name, target, help)->required()->type_name("");
}

}  // namespace dosa::cli
