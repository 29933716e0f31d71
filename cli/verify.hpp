// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine_options.hpp"

namespace dosa::cli {

/// Arguments of `dosa verify`, whatever the backend.
struct VerifyArgs {
  EngineArgs engine;
  bool json = false;
};

}  // namespace dosa::cli
