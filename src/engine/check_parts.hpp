// SPDX-License-Identifier: Apache-2.0
// The refusals that several calls share.
#ifndef DOSA_ENGINE_CHECK_PARTS_HPP
#define DOSA_ENGINE_CHECK_PARTS_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "dosa/dosa.h"
#include "engine/error.hpp"

namespace dosa::engine {

inline dosa_status bad_range(const char* name, long long found, long long low, long long high) {
  return fail(DOSA_INVALID_ARGUMENT, "%s: found %lld, expected %lld to %lld", name, found, low,
              high);
}

inline dosa_status null_pointer(const char* name) {
  return fail(DOSA_INVALID_ARGUMENT, "%s: found null, expected a pointer", name);
}

inline dosa_status bad_size(const char* name, std::size_t found, std::size_t expected) {
  return fail(DOSA_INVALID_ARGUMENT, "%s.struct_size: found %zu, expected %zu", name, found,
              expected);
}

inline dosa_status check_alignment(const char* name, const void* pointer, unsigned alignment = 4) {
  const auto rest = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(pointer) % alignment);
  if (rest == 0) return DOSA_OK;
  return fail(DOSA_INVALID_ARGUMENT, "%s: found an address %u n + %u, expected a multiple of %u",
              name, alignment, rest, alignment);
}

struct Range {
  const char* name;
  long long value, low, high;
};

inline dosa_status check_ranges(const Range* begin, const Range* end) {
  for (const Range* range = begin; range != end; ++range) {
    if (range->value < range->low || range->value > range->high) {
      return bad_range(range->name, range->value, range->low, range->high);
    }
  }
  return DOSA_OK;
}
inline dosa_status check_ranges(std::initializer_list<Range> ranges) {
  return check_ranges(ranges.begin(), ranges.end());
}

struct Stride {
  const char* name;
  std::int64_t value, least;
};

inline dosa_status check_strides(const Stride* begin, const Stride* end) {
  for (const Stride* stride = begin; stride != end; ++stride) {
    if (stride->value < stride->least) {
      return fail(DOSA_INVALID_ARGUMENT, "%s: found %lld, expected at least %lld", stride->name,
                  static_cast<long long>(stride->value), static_cast<long long>(stride->least));
    }
  }
  return DOSA_OK;
}
inline dosa_status check_strides(std::initializer_list<Stride> strides) {
  return check_strides(strides.begin(), strides.end());
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CHECK_PARTS_HPP
