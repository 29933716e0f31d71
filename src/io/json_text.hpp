// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace dosa::io {

/// Appends `value` as a JSON string, quotes included. It builds no document: values of a JSON
/// library allocate when they are destroyed, so that writing a file could end the process where
/// memory is short. Throws: Error where `value` is not UTF-8, which JSON cannot hold.
void append_json_string(std::string& text, std::string_view value);

}  // namespace dosa::io
