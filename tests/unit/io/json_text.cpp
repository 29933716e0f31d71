// SPDX-License-Identifier: Apache-2.0
//
// JSON strings against the JSON library's own: the same text for every text that is UTF-8, and a
// refusal for every other.
#include "io/json_text.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "io/error.hpp"

namespace dosa::io {
namespace {

/// What both make of `text`; "refused" where they do.
void expect_same(const std::string& text) {
  std::string expected = "refused";
  std::string found = "refused";
  try {
    expected = nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
  }
  try {
    std::string made;
    append_json_string(made, text);
    found = made;
  } catch (const Error&) {
  }
  EXPECT_EQ(found, expected) << nlohmann::json::binary({text.begin(), text.end()}).dump();
}

TEST(JsonText, EveryByteAndEveryPair) {
  expect_same("");
  for (int a = 0; a < 256; ++a) {
    expect_same({static_cast<char>(a)});
    for (int b = 0; b < 256; ++b) expect_same({static_cast<char>(a), static_cast<char>(b)});
  }
}

// The borders of what the second byte may be, and whole and cut characters of each length.
TEST(JsonText, LongCharactersAtTheirBorders) {
  for (int lead = 0xe0; lead < 256; ++lead) {
    for (const int second : {0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0}) {
      for (const int third : {0x20, 0x7f, 0x80, 0xbf, 0xc0}) {
        for (const int fourth : {0x7f, 0x80, 0xbf, 0xc0, 0x22}) {
          std::string text;
          for (const int byte : {lead, second, third, fourth}) {
            text += static_cast<char>(byte);
            expect_same(text);
          }
          expect_same(text + "x");
        }
      }
    }
  }
}

TEST(JsonText, RandomBytes) {
  std::mt19937 random(5);
  const std::string frequent = "\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9\n\\\"a";
  for (int n = 0; n < 20000; ++n) {
    std::string text;
    for (int i = 0; i < 9; ++i) {
      text +=
          random() % 8 == 0 ? static_cast<char>(random()) : frequent[random() % frequent.size()];
    }
    expect_same(text);
  }
}

}  // namespace
}  // namespace dosa::io
