// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "io/trace.hpp"

namespace dosa::io {

enum class GenDomain { kEnglish, kChinese, kCode };

/// The workload model of docs/workloads.md. Lengths are in units of a key's coordinate, loadings
/// are cosines with unit directions.
///
///   key     k = shared_i mu + salience_i (theme Theta + subject Psi_passage) + detail, |k| =
///   sqrt(D) query   q = alpha_h mu + eta_h Theta + zeta_h sum_passages interest Psi +
///   residual_h(row)
struct GenModel {
  int heads = 32;
  int positive = 4;  // heads that look for the theme and the current subjects
  int hesitant = 4;  // negative heads that fire on about half of the keys
  int quiet = 6;     // negative heads that rarely fire; all others fire on nearly every key

  // Keys.
  double salient_share = 0.028;  // share of tokens that carry the document's theme
  double salient_mean = 0.75;    // their salience; that of ordinary tokens is near 0
  double salient_spread = 0.15;
  double ordinary_spread = 0.10;
  double shared = 6.0;  // component that ordinary keys have in common
  double shared_spread = 0.4;
  double shared_loss = 0.4;       // share of it that a key of salience 1 has lost
  double theme = 2.0;             // along the theme, at salience 1
  double subject = 2.0;           // along the passage's subject, at salience 1
  double subject_ordinary = 0.8;  // along the passage's subject, ordinary tokens
  int num_subjects = 12;
  int passage_length = 512;  // mean, tokens

  // Query directions.
  double positive_shared = 0.25;
  double positive_theme = 0.4;
  double positive_subject = 0.35;
  double firing_shared = 0.4;  // mean of the firing negative heads' loadings; spread a third
  double hesitant_shared = 0.0;
  double quiet_shared = -0.15;
  double negative_theme = 0.0;
  double drift = 0.4;         // share of the residual's variance that changes over drift_length
  double token_noise = 0.35;  // share of the residual's variance that is new in every row
  int drift_length = 256;

  // Weights.
  double positive_weight = 1.0;
  double negative_weight = 0.16;
  double hesitant_weight = 0.10;
  double quiet_weight = 0.10;
  double weight_spread = 0.15;    // relative, by row; the firing and the positive heads
  double wavering_spread = 0.57;  // the hesitant and the quiet heads, which may turn positive
};

/// The model calibrated to what is published for GLM-5.2 (32 heads). `rows` is 8 or 16: the
/// screening rows of the variant, which bracket the unpublished number of retained heads.
/// layer 0 .. 20.  Throws: Error.
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
