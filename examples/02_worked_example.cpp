// SPDX-License-Identifier: Apache-2.0
// The worked example of docs/numerics.md: one key, four heads, every number from the library's own
// functions. It links the library's objects, since none of these functions is part of the
// interface.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "numeric/e4m3.hpp"
#include "numeric/outward.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "plan/operands.hpp"
#include "refine/score.hpp"
#include "screen/screen.hpp"

namespace {

namespace plan = dosa::plan;
namespace refine = dosa::refine;
namespace screen = dosa::screen;

constexpr int kHeads = 4;
constexpr int kDim = 16;
constexpr int kShown = 4;  // the other coordinates are zero
constexpr std::size_t kBytes = std::size_t{4} << 20;

constexpr std::uint8_t kKey[kDim] = {0x6a, 0xe2, 0x46, 0x05};
constexpr std::uint8_t kQuery[kHeads * kDim] = {
    0x71, 0,    0,    0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // q_0
    0x69, 0x59, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // q_1
    0,    0x38, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // q_2
    0x30, 0,    0x40, 0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // q_3
};
constexpr float kWeights[kHeads] = {0x1p-6F, 0x1p-7F, -0.75F, -0.125F};
constexpr float kScale = 0.1F;

void show(const std::string& name, double value) {
  std::printf("  %-16s %.17g = %a\n", name.c_str(), value, value);
}
void show(const std::string& name, float value) {
  const double exact = value;
  std::printf("  %-16s %.9g = %a\n", name.c_str(), exact, exact);
}
void show(const std::string& name, std::int64_t value) {
  std::printf("  %-16s %lld\n", name.c_str(), static_cast<long long>(value));
}

template <typename T>
void show_vector(const std::string& name, const T* values) {
  std::printf("  %-16s", name.c_str());
  for (int d = 0; d < kShown; ++d) std::printf(" %.10g", static_cast<double>(values[d]));
  std::printf("\n");
}

void show_codes(const std::string& name, const std::uint8_t* codes) {
  std::printf("  %-16s", name.c_str());
  for (int d = 0; d < kShown; ++d) std::printf(" %02x", static_cast<unsigned>(codes[d]));
  std::printf("  =");
  for (int d = 0; d < kShown; ++d) {
    std::printf(" %.10g", std::ldexp(dosa::kE4m3Units[codes[d]], dosa::kE4m3UnitExponent));
  }
  std::printf("\n");
}

/// Everything that planning, screening and scoring work on.
struct Example {
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  plan::KeyTile tile;
  plan::QueryPack pack;
  plan::QueryRows rows;
  plan::ScreenOperand operand;
  plan::ScreenOperand scratch;
  plan::AllHeadsOperand all_heads;
  plan::Certificate certificate;
  plan::Envelope envelope;

  Example() {
    dosa::Arena arena(dosa::align_workspace(memory.data()));
    tile.place(arena, plan::kTileKeys, kDim, plan::simd_lanes(), 0, true);
    pack.place(arena, kHeads, kDim);
    rows.place(arena, kHeads, kDim);
    operand.place(arena, kHeads + plan::kMaxAuxiliary, kDim);
    scratch.place(arena, kHeads + plan::kMaxAuxiliary, kDim);
    all_heads.place(arena, kHeads);
    plan::build_tile({kKey, kDim, &kScale}, 0, nullptr, 1, tile);
    plan::pack_query(kQuery, kWeights, pack, rows);
    plan::ActivationStatistics statistics;  // head 2 is quiet on the sample, head 3 active
    statistics.samples = 4;
    statistics.active = {4, 4, 0, 4};
    plan::CertificateOptions options;
    options.retained = 1;
    certificate = plan::make_certificate(rows, kWeights, kHeads, kDim, statistics, options);
    envelope = plan::build_operand(certificate, rows, kWeights, operand);
    plan::build_all_heads(rows, kWeights, kHeads, kDim, scratch, all_heads);
  }

  /// The score with other weights and another scale.
  float score(const std::array<float, kHeads>& weights, float scale) {
    const std::array<float, kHeads> saved = {pack.weights[0], pack.weights[1], pack.weights[2],
                                             pack.weights[3]};
    std::copy(weights.begin(), weights.end(), pack.weights);
    tile.scale[0] = scale;
    float result = 0.0F;
    refine::score_keys(pack, tile, nullptr, 1, &result, nullptr);
    std::copy(saved.begin(), saved.end(), pack.weights);
    tile.scale[0] = kScale;
    return result;
  }
};

/// The low part of the key as a vector.
std::array<std::int16_t, kDim> low_of_key(const plan::KeyTile& tile) {
  std::array<std::int16_t, kDim> low{};
  for (std::uint32_t n = tile.low_begin[0]; n < tile.low_begin[1]; ++n) {
    const auto at = static_cast<std::size_t>(2 * tile.low[n].pair);
    low[at] = tile.low[n].first;
    low[at + 1] = tile.low[n].second;
  }
  return low;
}

std::int64_t dot(const std::int16_t* a, const std::int16_t* b) {
  std::int64_t sum = 0;
  for (int d = 0; d < kDim; ++d) sum += std::int64_t{a[d]} * b[d];
  return sum;
}

/// q_h . k in units of 2^-18, from the four brackets of N3.
std::int64_t exact_dot(const Example& e, int h, bool print) {
  const std::array<std::int16_t, kDim> low = low_of_key(e.tile);
  const std::int16_t* hat = e.rows.hat + h * kDim;
  const std::int16_t* rest = e.rows.low + h * kDim;
  const std::int64_t brackets[4] = {dot(hat, e.tile.rows), dot(rest, e.tile.rows),
                                    dot(hat, low.data()), dot(rest, low.data())};
  if (print) {
    std::printf("  q_%d.k            2^%d * %lld + 2^%d * %lld + 2^%d * %lld + %lld\n", h,
                e.rows.shift[h] + e.tile.shift[0], static_cast<long long>(brackets[0]),
                e.tile.shift[0], static_cast<long long>(brackets[1]), e.rows.shift[h],
                static_cast<long long>(brackets[2]), static_cast<long long>(brackets[3]));
  }
  const std::int64_t unit_q = std::int64_t{1} << e.rows.shift[h];
  const std::int64_t unit_k = std::int64_t{1} << e.tile.shift[0];
  return unit_q * unit_k * brackets[0] + unit_k * brackets[1] + unit_q * brackets[2] + brackets[3];
}

void show_inputs() {
  std::printf("inputs\n");
  show_codes("k", kKey);
  show("k_scale", kScale);
  for (int h = 0; h < kHeads; ++h) {
    show_codes("q_" + std::to_string(h), kQuery + h * kDim);
  }
  show_vector("w", kWeights);
}

void show_integers(const Example& e) {
  std::printf("integers\n");
  std::printf("  shift of k       %d\n", e.tile.shift[0]);
  show_vector("k^", e.tile.rows);
  show_vector("k_lo", low_of_key(e.tile).data());
  show("kappa", e.tile.norm[0]);
  show("lambda", e.tile.low_norm[0]);
  show("f", e.tile.factor[0]);
  std::printf("  shift of q_0     %d\n", e.rows.shift[0]);
  show_vector("q^_0", e.rows.hat);
  show_vector("q_lo,0", e.rows.low);
  show("q_0.k", exact_dot(e, 0, true));
}

void show_score(Example& e) {
  std::printf("score\n");
  double real = 0.0;
  for (int h = 0; h < kHeads; ++h) {
    std::array<float, kHeads> one{};
    one[static_cast<std::size_t>(h)] = 1.0F;
    show("[x_" + std::to_string(h) + "]+", e.score(one, 1.0F));
    const auto exact = static_cast<double>(exact_dot(e, h, false)) * 0x1p-18;
    real += static_cast<double>(kWeights[h]) * std::max(exact, 0.0) * static_cast<double>(kScale);
  }
  for (int lane = 0; lane < 2; ++lane) {
    std::array<float, kHeads> part{};
    for (const int h : {2 * lane, 2 * lane + 1}) part[static_cast<std::size_t>(h)] = kWeights[h];
    show("a_" + std::to_string(lane), e.score(part, 1.0F));
    show("p_" + std::to_string(lane), e.score(part, kScale));
  }
  const float score = e.score({kWeights[0], kWeights[1], kWeights[2], kWeights[3]}, kScale);
  show("s", score);
  show("sigma", real);
  std::printf("  s - sigma        %.3g\n", static_cast<double>(score) - real);
}

void show_plan(const Example& e) {
  std::printf("plan\n");
  show("b_1", e.certificate.beta[1]);
  show("E_P", e.certificate.allowance);
  show("w~_0", e.certificate.folded[0]);
  show("c_0", e.operand.coefficient[0]);
  show("c_A", e.operand.coefficient[1]);
  std::int16_t row[kDim];
  for (int j = 0; j < kDim / 2; ++j) {
    const std::int32_t pair = e.operand.pairs[kDim / 2 + j];
    row[2 * j] = static_cast<std::int16_t>(pair & 0xFFFF);
    row[2 * j + 1] = static_cast<std::int16_t>(pair >> 16);
  }
  show_vector("g^_A", row);
  show("X_0", dot(e.rows.hat, e.tile.rows));
  show("X_A", dot(row, e.tile.rows));
  std::printf("envelope, R' = %d, n_ref = %d\n", e.operand.rows, plan::reference_roundings(kHeads));
  show("S", e.envelope.strength);
  show("gamma_ref S", e.envelope.reference);
  show("rho part", e.envelope.reconstruction);
  show("B_0", e.envelope.low);
  show("gamma_s B_0", e.envelope.screening);
  show("E", e.operand.norm_term);
  show("B", e.operand.low_term);
  show("floor", e.operand.floor);
}

/// The bound of math.md in double, with nothing for rounding: what the guard is measured against.
double real_bound(const Example& e) {
  double squared = 0.0;
  double aggregate = 0.0;
  for (int d = 0; d < kDim; ++d) {
    const double k = dosa::kE4m3Units[kKey[d]];
    squared += k * k;
    aggregate += k * dosa::kE4m3Units[kQuery[3 * kDim + d]] * std::fabs(kWeights[3]);
  }
  const double retained = e.certificate.folded[0] * static_cast<double>(exact_dot(e, 0, false));
  return (retained + e.certificate.allowance * std::sqrt(squared) - std::max(aggregate, 0.0)) *
         0x1p-18 * static_cast<double>(kScale);
}

void show_bounds(const Example& e) {
  std::printf("bounds\n");
  alignas(dosa::Arena::kAlignment) std::array<float, plan::kTileKeys> computed{};
  const dosa::LowerBound none(-std::numeric_limits<float>::infinity());
  screen::screen_tile_ref(e.operand, e.tile, none, computed.data());
  show("V", computed[0]);
  show("U", screen::certified_bound(computed[0]).value);
  const double real = real_bound(e);
  show("real U", real);
  std::printf("  V - real U       %.3g\n", static_cast<double>(computed[0]) - real);
  for (const float tau : {24.0F, 22.0F}) {
    const dosa::LowerBound guarded = screen::guarded_threshold(tau);
    std::printf("  tau = %g         tau_lo = %.9g: %s\n", static_cast<double>(tau),
                static_cast<double>(guarded.value),
                dosa::rejects(dosa::UpperBound(computed[0]), guarded) ? "rejected" : "survives");
  }
  const std::uint16_t pick = 0;
  std::uint16_t kept = 0;
  float score = 0.0F;
  float bound = 0.0F;
  const dosa::LowerBound guarded = screen::guarded_threshold(22.0F);
  const int left = refine::refine_keys_ref(e.pack, e.tile, e.all_heads, guarded, &pick, 1, &kept,
                                           &score, &bound);
  show("V, all heads", bound);
  std::printf("  tau = 22         %s\n", left == 0 ? "rejected" : "kept");
}

}  // namespace

int main() {
  Example example;
  show_inputs();
  show_integers(example);
  show_score(example);
  show_plan(example);
  show_bounds(example);
  return 0;
}
