// SPDX-License-Identifier: Apache-2.0
// The last failure of a thread, as one line. No allocation: it must work when there is no memory.
#ifndef DOSA_ENGINE_ERROR_HPP
#define DOSA_ENGINE_ERROR_HPP

#include "dosa/dosa.h"

namespace dosa::engine {

/// Stores the printf-style message and returns `status`.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
dosa_status
fail(dosa_status status, const char* format, ...);

void clear_error();
const char* last_error();

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_ERROR_HPP
