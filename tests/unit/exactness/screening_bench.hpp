// SPDX-License-Identifier: Apache-2.0
//
// One query row and a few keys taken through planning and screening by hand, so that a test can
// leave one rounding term out and look at the bound that results.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "oracle/generate.hpp"
#include "oracle/oracle.hpp"
#include "plan/allowance.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "plan/operands.hpp"
#include "screen/screen.hpp"

namespace dosa::test {

/// A vector of 128 coordinates: the listed ones, and `rest` everywhere else.
inline std::vector<std::uint8_t> vector_of(const std::map<int, double>& values, double rest = 0.0) {
  std::vector<std::uint8_t> codes(128, oracle::encode_e4m3(rest));
  for (const auto& [d, x] : values) codes[static_cast<std::size_t>(d)] = oracle::encode_e4m3(x);
  return codes;
}

/// A problem of one row (H heads of 128 coordinates) and the given keys, all scales equal.
inline oracle::Problem one_row(const std::vector<std::vector<std::uint8_t>>& heads,
                               const std::vector<float>& weights,
                               const std::vector<std::vector<std::uint8_t>>& keys, float scale) {
  oracle::Problem p;
  p.num_queries = 1;
  p.num_heads = static_cast<int>(heads.size());
  p.head_dim = static_cast<int>(heads[0].size());
  p.num_keys = static_cast<std::int64_t>(keys.size());
  for (const auto& head : heads) p.q.insert(p.q.end(), head.begin(), head.end());
  for (const auto& key : keys) p.k.insert(p.k.end(), key.begin(), key.end());
  p.weights = weights;
  p.k_scale.assign(keys.size(), scale);
  return p;
}

class ScreeningBench {
 public:
  static constexpr int kGroups = 4;

  explicit ScreeningBench(const oracle::Problem& problem, int groups = 0)
      : problem_(problem), memory_(std::make_unique<std::byte[]>(kBytes)) {
    Arena arena(align_workspace(memory_.get()));
    tile.place(arena, plan::kTileKeys, problem_.head_dim, plan::simd_lanes(), groups, true);
    pack.place(arena, problem_.num_heads, problem_.head_dim);
    rows.place(arena, problem_.num_heads, problem_.head_dim);
    operand.place(arena, problem_.num_heads + plan::kMaxAuxiliary, problem_.head_dim);
    all_heads.place(arena, problem_.num_heads);
    EXPECT_LE(arena.used(), kBytes - Arena::kAlignment);
    const plan::KeySource keys{problem_.k.data(), problem_.head_dim, problem_.k_scale.data()};
    plan::build_tile_ref(keys, 0, nullptr, static_cast<int>(problem_.num_keys), tile);
    plan::pack_query(problem_.q.data(), problem_.weights.data(), pack, rows);
  }

  /// The plan that the library makes.
  void plan_by_rule(const plan::CertificateOptions& options) {
    certificate = plan::make_certificate(rows, problem_.weights.data(), problem_.num_heads,
                                         problem_.head_dim, plan::ActivationStatistics{}, options);
  }

  /// A plan with these roles, retained heads in order. Anchors are chosen where asked for.
  void plan_by_hand(const std::vector<plan::Role>& roles, bool projection = false) {
    certificate = plan::Certificate{};
    certificate.heads = problem_.num_heads;
    certificate.anchor.fill(-1);
    for (std::size_t h = 0; h < roles.size(); ++h) {
      certificate.role[h] = roles[h];
      if (roles[h] == plan::Role::kAggregated) certificate.num_aggregates = 1;
      if (roles[h] != plan::Role::kRetained) continue;
      certificate.retained[static_cast<std::size_t>(certificate.num_retained++)] =
          static_cast<std::int16_t>(h);
      certificate.folded[h] = problem_.weights[h];
    }
    plan::CertificateOptions options;
    options.projection = projection;
    options.allowance = DOSA_ALLOWANCE_TRIANGLE;
    plan::add_allowances(rows, problem_.weights.data(), problem_.head_dim, options, certificate);
  }

  plan::Envelope build() {
    return plan::build_operand(certificate, rows, problem_.weights.data(), operand);
  }

  /// The bound over all heads that refinement uses.
  plan::Envelope build_all_heads() {
    return plan::build_all_heads(rows, problem_.weights.data(), problem_.num_heads,
                                 problem_.head_dim, operand, all_heads);
  }

  /// Bounds as the kernel computes them; compare with a guarded threshold only.
  [[nodiscard]] std::vector<float> computed() const {
    std::vector<float> bounds(plan::kTileKeys);
    screen::screen_tile_ref(operand, tile, LowerBound(-std::numeric_limits<float>::infinity()),
                            bounds.data());
    bounds.resize(static_cast<std::size_t>(problem_.num_keys));
    return bounds;
  }

  /// The certified bound of one key.
  [[nodiscard]] float bound(std::size_t key = 0) const {
    return screen::certified_bound(computed()[key]).value;
  }

  [[nodiscard]] float score(std::int64_t key = 0) const { return oracle::score(problem_, 0, key); }

  /// The bound holds, and would not with `changed` terms.
  void expect_needed(const plan::Envelope& full, const plan::Envelope& changed) {
    EXPECT_GE(bound(), score());
    plan::set_terms(certificate, changed, operand);
    EXPECT_LT(bound(), score()) << "the term left out makes no difference here";
    plan::set_terms(certificate, full, operand);
    EXPECT_GE(bound(), score());
  }

  plan::KeyTile tile;
  plan::QueryPack pack;
  plan::QueryRows rows;
  plan::ScreenOperand operand;
  plan::AllHeadsOperand all_heads;
  plan::Certificate certificate;

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  oracle::Problem problem_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace dosa::test
