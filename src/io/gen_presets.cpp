// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>

#include "io/error.hpp"
#include "io/gen_model.hpp"
#include "io/gen_random.hpp"

namespace dosa::io {
namespace {

// Aggregating all negative heads is published to cost most in the early layers, most of all in
// layer 2: share of contrary tokens by layer (from the last entry on it stays the same), and how
// contrary they are where there are many.
constexpr std::array<double, 5> kContraryShare = {0.0125, 0.0275, 0.200, 0.0275, 0.00625};
constexpr double kManyContrary = 0.02;
constexpr double kVeryContrary = 11.5;

void set_layer(GenModel& model, int layer) {
  // Layers differ in how flat their scores are; the first is by far the flattest.
  const double vary = 2 * CounterRandom(kGenLayers).uniform(static_cast<std::uint64_t>(layer)) - 1;
  model.salient_share = layer == 0 ? 0.108 : 0.0237 * (1 + 0.12 * vary);
  model.contrary_share =
      kContraryShare[std::min(static_cast<std::size_t>(layer), kContraryShare.size() - 1)];
  if (model.contrary_share > kManyContrary) model.contrary = kVeryContrary;
}

void set_domain(GenModel& model, GenDomain domain) {
  if (domain == GenDomain::kChinese) {
    model.salient_share *= 0.99;
    model.passage_length = 384;
  } else if (domain == GenDomain::kCode) {
    model.salient_share *= 0.985;
    model.passage_length = 320;
    model.drift_length = 192;
  }
}

void check_layer(int layer) {
  if (layer < 0 || layer >= kGenLayers) {
    const std::string expected = "0 to " + std::to_string(kGenLayers - 1);
    throw Error("layer", std::to_string(layer), expected);
  }
}

GenModel preset(bool many_positive, int layer, GenDomain domain) {
  check_layer(layer);
  GenModel model;
  if (many_positive) {
    model.positive = 11;
    model.salient_mean = 0.77;
    model.positive_weight = 0.364;
    model.firing_weight = 0.62;
    model.quiet_weight = 0.18;
    model.quiet_contrary = 0.90;
    model.wavering_spread = 0.66;
  }
  set_layer(model, layer);
  if (many_positive) model.contrary_share *= 0.92;
  set_domain(model, domain);
  model.stream = static_cast<std::uint64_t>(layer) * 8 + static_cast<std::uint64_t>(domain) * 2 +
                 (many_positive ? 1 : 0);
  return model;
}

}  // namespace

GenModel glm52_model(int rows, int layer, GenDomain domain) {
  if (rows != 8 && rows != 16) {
    throw Error("rows", std::to_string(rows), "8 or 16");
  }
  return preset(rows == 16, layer, domain);
}

GenModel dsv32_model(int rows, int layer, GenDomain domain) {
  if (rows != 16 && rows != 32) {
    throw Error("rows", std::to_string(rows), "16 or 32");
  }
  GenModel model = preset(rows == 32, layer, domain);
  model.stream += 1024;
  model.heads *= 2;
  model.positive *= 2;
  model.hesitant *= 2;
  model.quiet *= 2;
  model.positive_weight /= 2;
  model.firing_weight /= 2;
  model.hesitant_weight /= 2;
  model.quiet_weight /= 2;
  return model;
}

}  // namespace dosa::io
