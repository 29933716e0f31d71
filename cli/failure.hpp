// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace dosa::cli {

/// Exit codes of the command.
constexpr int kSuccess = 0;
constexpr int kDifference = 1;  // verify: an answer differs or a bound was violated
constexpr int kMisuse = 2;      // arguments, files, anything that stopped the command

/// Ends the command with exit code kMisuse and one line on stderr.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& line) : std::runtime_error(line) {}
  Failure(std::string_view what, std::string_view found, std::string_view expected);
};

/// Throws the library's sentence where `status` is not DOSA_OK.
void check(dosa_status status);

}  // namespace dosa::cli
