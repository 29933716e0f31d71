// SPDX-License-Identifier: Apache-2.0
// A row's certificate in the terms of the C interface.
#ifndef DOSA_ENGINE_DESCRIBE_HPP
#define DOSA_ENGINE_DESCRIBE_HPP

#include "dosa/dosa.h"
#include "engine/row_state.hpp"

namespace dosa::engine {

void describe(const RowState& state, const dosa_problem& problem, dosa_certificate& out);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DESCRIBE_HPP
