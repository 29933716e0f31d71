// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/dtype.hpp"

namespace dosa::io {

/// The one name that is not a tensor's.
constexpr std::string_view kMetadataName = "__metadata__";

/// What the JSON header says of one tensor; the numbers are not yet checked against the file.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

/// The header that `json` spells. Anything that is not exactly the format is refused: other
/// fields, repeated names, numbers that are not plain unsigned integers.
/// Throws: Error naming the tensor, found and expected.
[[nodiscard]] Header parse_header(std::string_view json);

}  // namespace dosa::io
