// SPDX-License-Identifier: Apache-2.0
#include "io/error.hpp"

#include <system_error>

namespace dosa::io {
namespace {

constexpr std::size_t kMaxQuotedBytes = 80;
constexpr unsigned char kDelete = 0x7f;

}  // namespace

Error::Error(std::string_view what, std::string_view found, std::string_view expected)
    : std::runtime_error(std::string(what) + ": found " + std::string(found) + ", expected " +
                         std::string(expected)) {}

std::string printable(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char character : text.substr(0, kMaxQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < ' ' || byte == kDelete) {
      out.append("\\x").push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(character);
    }
  }
  out.append(text.size() > kMaxQuotedBytes ? "...'" : "'");
  return out;
}

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace dosa::io
