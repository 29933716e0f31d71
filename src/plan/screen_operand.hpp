// SPDX-License-Identifier: Apache-2.0
// What planning hands to screening: the rows that are multiplied with every key, and the numbers
// that turn their products into a proven upper bound of the score (docs/numerics.md).
#ifndef DOSA_PLAN_SCREEN_OPERAND_HPP
#define DOSA_PLAN_SCREEN_OPERAND_HPP

#include <cstddef>
#include <cstdint>

#include "numeric/arena.hpp"
#include "plan/operands.hpp"

namespace dosa::plan {

inline constexpr int kMaxAuxiliary = 2;  // aggregate rows

/// U_raw = floor + norm_term kappa + low_term lambda + allowance + sum_j coefficient_j [X_j]+
///         - X_linear - |X_absolute| (absolute-value form only),      X_j = row_j . k^,
/// U = U_raw factor.  kappa, lambda, factor: KeyTile. allowance is min(allowance kappa,
/// sum_g group_allowance_g kappa_g) where groups > 0, otherwise it is part of norm_term.
struct ScreenOperand {
  int rows = 0;  // R', retained heads first, then aggregates
  int head_dim = 0;
  bool absolute = false;          // the last two rows are the linear and the absolute one
  std::int32_t* pairs = nullptr;  // (rows, D / 2) int16 pairs
  float* coefficient = nullptr;   // (rows), rounded so that the bound only grows (N6)
  float norm_term = 0.0F;         // E
  float low_term = 0.0F;          // B
  float floor = 0.0F;             // absolute term for underflow (N9)
  int groups = 0;
  float allowance = 0.0F;
  float group_allowance[kMaxGroups] = {};

  void place(Arena& arena, int max_rows, int head_dim_) {
    head_dim = head_dim_;
    const auto count = static_cast<std::size_t>(max_rows);
    pairs = arena.take<std::int32_t>(count * static_cast<std::size_t>(head_dim) / 2);
    coefficient = arena.take<float>(count);
  }
};

/// The bound with no head omitted: U_raw = floor + norm_term kappa + low_term lambda
/// + sum_h coefficient_h [q^_h . k^]+. U - s is rounding alone.
struct AllHeadsOperand {
  float* coefficient = nullptr;  // (padded_heads) w_h 2^sq rounded up, 0 behind the last head
  float norm_term = 0.0F, low_term = 0.0F, floor = 0.0F;

  void place(Arena& arena, int heads) {
    coefficient = arena.take<float>(static_cast<std::size_t>(padded_heads(heads)));
  }
};

}  // namespace dosa::plan

#endif  // DOSA_PLAN_SCREEN_OPERAND_HPP
