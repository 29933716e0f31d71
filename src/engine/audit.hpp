// SPDX-License-Identifier: Apache-2.0
// Checks every rejection of a run against the exact score (`dosa verify`).
#ifndef DOSA_ENGINE_AUDIT_HPP
#define DOSA_ENGINE_AUDIT_HPP

#include <cstdint>
#include <limits>

namespace dosa::engine {

struct Audit {
  std::int64_t rejected = 0;
  std::int64_t violations = 0;
  double min_margin = std::numeric_limits<double>::infinity();
  std::int64_t row = -1, key = -1;
  float bound = 0.0F, score = 0.0F;

  void add(std::int64_t at_row, std::int64_t at_key, float at_bound, float at_score) {
    ++rejected;
    if (!(at_bound >= at_score)) ++violations;
    consider(at_row, at_key, at_bound, at_score);
  }

  void merge(const Audit& other) {
    rejected += other.rejected;
    violations += other.violations;
    if (other.row >= 0) consider(other.row, other.key, other.bound, other.score);
  }

 private:
  /// Equal margins are settled by position, so that the witness does not depend on threads.
  void consider(std::int64_t at_row, std::int64_t at_key, float at_bound, float at_score) {
    const double margin = static_cast<double>(at_bound) - static_cast<double>(at_score);
    const bool earlier = at_row < row || (at_row == row && at_key < key);
    if (margin > min_margin || (margin == min_margin && !earlier)) return;
    min_margin = margin;
    row = at_row;
    key = at_key;
    bound = at_bound;
    score = at_score;
  }
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_AUDIT_HPP
