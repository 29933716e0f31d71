// SPDX-License-Identifier: Apache-2.0
#include "io/json_text.hpp"

#include <cstddef>

#include "io/error.hpp"

namespace dosa::io {
namespace {

/// The bytes of the UTF-8 character that `text` begins with; 0 where it begins with none (RFC 3629:
/// no longer form than needed, no surrogates, nothing above U+10FFFF).
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  if (lead < 0xc2 || lead > 0xf4) {
    return 0;
  }
  const std::size_t bytes = lead < 0xe0 ? 2 : (lead < 0xf0 ? 3 : 4);
  if (text.size() < bytes) {
    return 0;
  }
  const unsigned least = lead == 0xe0 ? 0xa0 : (lead == 0xf0 ? 0x90 : 0x80);
  const unsigned most = lead == 0xed ? 0x9f : (lead == 0xf4 ? 0x8f : 0xbf);
  if (byte(1) < least || byte(1) > most) {
    return 0;
  }
  for (std::size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) {
      return 0;
    }
  }
  return bytes;
}

void append_escaped(std::string& text, unsigned char control) {
  constexpr std::string_view kLetters = "btn?fr";  // of 8 to 13; 11 has none
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (control >= 8 && control <= 13 && control != 11) {
    text += {'\\', kLetters[control - 8U]};
  } else {
    text += {'\\', 'u', '0', '0', kDigits[control >> 4U], kDigits[control & 15U]};
  }
}

}  // namespace

void append_json_string(std::string& text, std::string_view value) {
  text += '"';
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t bytes = character_bytes(rest);
    if (bytes == 0) {
      throw Error("the text " + printable(value), "bytes that are no UTF-8", "UTF-8");
    }
    const auto first = static_cast<unsigned char>(rest.front());
    if (first < 0x20) {
      append_escaped(text, first);
    } else {
      if (first == '"' || first == '\\') {
        text += '\\';
      }
      text += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes);
  }
  text += '"';
}

}  // namespace dosa::io
