// SPDX-License-Identifier: Apache-2.0
// Comparing and describing in the checks on decode steps.
#pragma once

#include <cstdio>
#include <string>

#include "gpu/paged_inputs.hpp"
#include "gpu/report.hpp"

namespace dosa::testing {

inline std::string describe(const PagedSpec& s) {
  return "B " + std::to_string(s.batch) + " n " + std::to_string(s.next_n) + " H " +
         std::to_string(s.heads) + " K " + std::to_string(s.topk) + " page " +
         std::to_string(s.page_size) + "+" + std::to_string(s.page_gap) + " tokens " +
         std::to_string(s.tokens);
}

inline std::string first_difference(const PagedAnswer& found, const PagedAnswer& wanted, int topk) {
  for (size_t i = 0; i < wanted.ids.size(); ++i) {
    const bool scores = !wanted.scores.empty() && found.scores[i] != wanted.scores[i];
    if (found.ids[i] == wanted.ids[i] && !scores) continue;
    char text[160];
    std::snprintf(text, sizeof text, "row %zu place %zu: id %d, expected %d%s", i / topk, i % topk,
                  found.ids[i], wanted.ids[i], scores ? " (scores differ)" : "");
    return text;
  }
  return "same";
}

inline void compare(const std::string& name, const PagedSpec& spec, const PagedAnswer& found,
                    const PagedAnswer& wanted) {
  expect(found == wanted, name + ", " + describe(spec), first_difference(found, wanted, spec.topk));
}

inline HostInputs make_keys(const PagedSpec& spec, unsigned seed) {
  return make_real(spec.batch * spec.next_n, spec.batch * spec.tokens, spec.heads, seed);
}

}  // namespace dosa::testing
