// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "io/trace.hpp"

namespace dosa::io {

enum class GenDomain { kEnglish, kChinese, kCode };

/// The parameters of the workload model that docs/workloads.md describes. Lengths of parts of a
/// key are in units in which a key has length sqrt(128); loadings are cosines between a query
/// and one of the model's directions. The defaults are a middle layer of `glm52 --rows 8`.
struct GenModel {
  std::uint64_t stream = 0;  // workloads with different streams are independent at the same seed
  int heads = 32;
  int positive = 4;  // heads that look for the theme and the current subjects
  int hesitant = 4;  // negative heads that fire on about half of the keys
  int quiet = 6;     // negative heads that rarely fire; all others fire on nearly every key

  // Keys.
  double salient_share = 0.0237;  // share of tokens that carry the document's theme
  double salient_mean = 0.82;     // their salience; that of ordinary tokens is near 0
  double salient_spread = 0.05;
  double ordinary_spread = 0.10;
  double shared = 8.0;  // component that ordinary keys have in common
  double shared_spread = 0.4;
  double shared_loss = 0.8;         // share of it that a key of salience 1 has lost
  double plain_share = 0.050;       // share of tokens that have little of it
  double plain_shared = 0.2;        // what these have, relative to the others
  double contrary_share = 0.00625;  // share of tokens that point against the quiet heads
  double contrary = 8.0;            // by how much
  double theme = 5.55;              // along the theme, at salience 1
  double subject = 2.0;             // along the passage's subject, at salience 1
  double subject_ordinary = 0.8;    // along the passage's subject, ordinary tokens
  int num_subjects = 24;
  int passage_length = 512;  // mean, tokens

  // Query directions.
  double positive_shared = 0.45;
  double positive_theme = 0.6;
  double positive_subject = 0.10;
  double firing_shared = 0.32;
  double quiet_shared = 0.12;    // with a minus sign
  double quiet_contrary = 0.80;  // with a minus sign
  double drift = 0.50;           // share of the residual's variance that changes over drift_length
  double token_noise = 0.45;     // share of the residual's variance that is new in every row
  int drift_length = 256;

  // Weights.
  double positive_weight = 1.0;
  double firing_weight = 0.38;
  double hesitant_weight = 0.10;
  double quiet_weight = 0.22;
  double weight_spread = 0.15;     // relative, by row; the firing and the positive heads
  double wavering_spread = 0.545;  // the hesitant and the quiet heads, which may turn positive
};

/// Layers of GLM-5.2 that have an indexer of their own.
inline constexpr int kGenLayers = 21;

/// The model calibrated to what is published for GLM-5.2 (32 heads). `rows` is 8 or 16: the
/// screening rows of the variant, which bracket the unpublished number of retained heads.
/// layer 0 .. kGenLayers - 1.  Throws: Error.
[[nodiscard]] GenModel glm52_model(int rows, int layer, GenDomain domain);

/// The same with 64 heads and twice the positive heads; rows 16 or 32. An extrapolation: nothing is
/// published for this model.  Throws: Error.
[[nodiscard]] GenModel dsv32_model(int rows, int layer, GenDomain domain);

struct GenShape {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t stride = 1;  // tokens between query rows; the last row is the last token
  std::uint64_t seed = 0;
  int threads = 0;  // 0: as many as the machine has; the result does not depend on it
};

/// A workload: row j asks at position keys - 1 - (queries - 1 - j) stride and sees all keys up to
/// and including its own.  Throws: Error where the shape is impossible.
[[nodiscard]] TraceData generate(const GenModel& model, const GenShape& shape);

}  // namespace dosa::io
