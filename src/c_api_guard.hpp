// SPDX-License-Identifier: Apache-2.0
// The only try/catch of the library: no exception crosses the C interface.
#ifndef DOSA_C_API_GUARD_HPP
#define DOSA_C_API_GUARD_HPP

#include <exception>
#include <new>

#include "dosa/dosa.h"
#include "engine/error.hpp"

namespace dosa {

/// Runs `body` (returning a status) behind the exception barrier.
template <typename Body>
dosa_status guarded(Body body) {
  engine::clear_error();
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return engine::fail(DOSA_INTERNAL, "memory: found none, expected enough for the call");
  } catch (const std::exception& error) {
    return engine::fail(DOSA_INTERNAL, "internal: %s", error.what());
  } catch (...) {
    return engine::fail(DOSA_INTERNAL, "internal: unknown exception");
  }
}

}  // namespace dosa

#endif  // DOSA_C_API_GUARD_HPP
