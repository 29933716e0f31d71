// SPDX-License-Identifier: Apache-2.0
// The pruned answer against every key scored, and every rejection against its bound.
#ifndef DOSA_ENGINE_VERIFY_HPP
#define DOSA_ENGINE_VERIFY_HPP

#include "dosa/dosa.h"

namespace dosa::engine {

/// Arguments are valid. Throws std::bad_alloc.
void verify(const dosa_problem& problem, const dosa_options& options, dosa_verification& report);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_VERIFY_HPP
