// SPDX-License-Identifier: Apache-2.0
#include "io/dtype.hpp"

#include <array>
#include <cstddef>

namespace dosa::io {
namespace {

struct Row {
  std::string_view name;
  std::uint64_t bits;
};

constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::kU64) + 1;

constexpr std::array<Row, kNumDTypes> kTable = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].name; }

std::uint64_t dtype_bits(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].bits; }

std::optional<DType> find_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

}  // namespace dosa::io
