// SPDX-License-Identifier: Apache-2.0
#include "engine/error.hpp"

#include <cstdarg>
#include <cstdio>

namespace dosa::engine {
namespace {
thread_local char message[512];
}  // namespace

dosa_status fail(dosa_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

void clear_error() { message[0] = '\0'; }
const char* last_error() { return message; }

}  // namespace dosa::engine
