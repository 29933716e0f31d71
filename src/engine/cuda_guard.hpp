// SPDX-License-Identifier: Apache-2.0
// No exception crosses the C interface of the device.
#ifndef DOSA_ENGINE_CUDA_GUARD_HPP
#define DOSA_ENGINE_CUDA_GUARD_HPP

#include <exception>

#include "engine/error.hpp"

namespace dosa::engine {

/// Runs `body` (returning a status) behind the exception barrier.
template <class Body>
dosa_status guarded_device_call(Body body) {
  clear_error();
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(DOSA_INTERNAL, "internal: %s", error.what());
  } catch (...) {
    return fail(DOSA_INTERNAL, "internal: unknown exception");
  }
}

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_GUARD_HPP
