// SPDX-License-Identifier: Apache-2.0
// The total order of the contract as integers: higher score first, -0 equal to +0, NaN last, equal
// scores by lower key id.
#ifndef DOSA_NUMERIC_ORDER_HPP
#define DOSA_NUMERIC_ORDER_HPP

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dosa {

/// Monotone code of a score: a higher score has a higher code. NaN is 0, below code(-Inf).
inline std::uint32_t score_code(float score) {
  if (std::isnan(score)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 becomes +0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The score of a code; a NaN for code 0.
inline float code_score(std::uint32_t code) {
  if (code == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((code & 0x80000000U) != 0 ? code & 0x7FFFFFFFU : ~code);
}

/// A scored key; greater is better, and no two keys of a row compare equal.
using Record = std::uint64_t;

inline Record make_record(std::uint32_t code, std::int32_t id) {
  return (static_cast<Record>(code) << 32) | (0xFFFFFFFFU - static_cast<std::uint32_t>(id));
}
inline std::uint32_t record_code(Record record) { return static_cast<std::uint32_t>(record >> 32); }
inline std::int32_t record_id(Record record) {
  return static_cast<std::int32_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(record));
}

}  // namespace dosa

#endif  // DOSA_NUMERIC_ORDER_HPP
