// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include "generate.hpp"

namespace dosa::oracle {

std::string name(Kind kind) {
  static const std::vector<std::string> kNames = {"zero", "int",   "dial",     "plateau",
                                                  "real", "codes", "parallel", "trained"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string name(Weights weights) {
  static const std::vector<std::string> kNames = {
      "ones", "signed", "negative", "mostly-negative", "cancelling", "zeros",
      "wide", "huge",   "tiny",     "not-finite"};
  return kNames[static_cast<std::size_t>(weights)];
}

std::string name(Scales scales) {
  static const std::vector<std::string> kNames = {"ones",     "positive",   "zeros",
                                                  "negative", "subnormal",  "huge",
                                                  "tiny",     "not-finite", "anything"};
  return kNames[static_cast<std::size_t>(scales)];
}

std::string name(Windows windows) {
  static const std::vector<std::string> kNames = {"none", "causal", "random", "odd"};
  return kNames[static_cast<std::size_t>(windows)];
}

std::ostream& operator<<(std::ostream& out, const Recipe& r) {
  return out << "Recipe{Q=" << r.num_queries << " H=" << r.num_heads << " D=" << 16 * r.sixteenths
             << " N=" << r.num_keys << " K=" << r.topk << " codes=" << name(r.kind)
             << " weights=" << name(r.weights) << " scales=" << name(r.scales)
             << " windows=" << name(r.windows) << " nan_codes=" << r.nan_codes << " seed=" << r.seed
             << "}";
}

}  // namespace dosa::oracle
