// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dosa::io {

/// The element types of the safetensors format. The order is that of the reference
/// implementation: a file's tensors are laid out by descending type, then by name.
enum class DType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// The name used in files, such as "F8_E4M3".
[[nodiscard]] std::string_view dtype_name(DType dtype);

/// Bits of one element; three types take less than a byte.
[[nodiscard]] std::uint64_t dtype_bits(DType dtype);

/// The type of that name, or nothing.
[[nodiscard]] std::optional<DType> find_dtype(std::string_view name);

}  // namespace dosa::io
