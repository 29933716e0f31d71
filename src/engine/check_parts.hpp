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

inline dosa_status check_workspace_size(const void* workspace, std::size_t found,
                                        std::size_t needed) {
  if (workspace == nullptr) return null_pointer("workspace");
  if (found >= needed) return DOSA_OK;
  return fail(DOSA_WORKSPACE_TOO_SMALL, "workspace_bytes: found %zu, expected at least %zu", found,
              needed);
}

/// `limit` holds no thread of the shape that needs `least` bytes.
inline dosa_status limit_too_small(std::uint64_t limit, std::size_t least) {
  return fail(DOSA_INVALID_ARGUMENT,
              "options.workspace_limit: found %llu bytes, expected at least %zu for this shape",
              static_cast<unsigned long long>(limit), least);
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
