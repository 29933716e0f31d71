// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dosa::io {

/// A file that cannot be read, is not what it claims to be, or cannot be written.
/// what() is one printable line: the file, the tensor where there is one, found and expected.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& line) : std::runtime_error(line) {}
  /// The line "<what>: found <found>, expected <expected>".
  Error(std::string_view what, std::string_view found, std::string_view expected);
};

/// `text` in single quotes, control characters escaped and the length capped: names come from
/// untrusted files, and a message must stay one line and may not drive a terminal.
[[nodiscard]] std::string printable(std::string_view text);

/// The sentence that belongs to an errno value.
[[nodiscard]] std::string system_text(int error_number);

}  // namespace dosa::io
