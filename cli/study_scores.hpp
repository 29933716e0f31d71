// SPDX-License-Identifier: Apache-2.0
// One row of an input in the engine's terms: its scores, activity, certificates and bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/schedule.hpp"
#include "plan/envelope.hpp"
#include "study_cases.hpp"

namespace dosa::cli {

/// Memory for what `place(Arena&)` takes; the placement runs twice, as the engine's does.
class Placed {
 public:
  template <typename Place>
  explicit Placed(const Place& place) {
    Arena counter;
    place(counter);
    memory_.resize(counter.used() + Arena::kAlignment);
    Arena arena(align_workspace(memory_.data()));
    place(arena);
  }

 private:
  std::vector<std::byte> memory_;
};

class StudyRow {
 public:
  StudyRow(const dosa_problem& problem, std::int64_t row);
  StudyRow(const StudyRow&) = delete;
  StudyRow& operator=(const StudyRow&) = delete;

  [[nodiscard]] engine::Window window() const { return window_; }
  /// True where queries and weights are finite.
  [[nodiscard]] bool finite() const { return query_.finite; }
  [[nodiscard]] const float* weights() const { return query_.weights; }

  /// Scores of the visible keys: element i is key window().begin + i.
  [[nodiscard]] std::vector<float> scores();

  /// How often each head fires on the keys of `ids`, which lie in the window.
  [[nodiscard]] plan::ActivationStatistics activity(const std::vector<std::int32_t>& ids);

  [[nodiscard]] plan::Certificate certify(const plan::ActivationStatistics& statistics,
                                          const plan::CertificateOptions& options) const;

  /// Computed bounds of the visible keys, for screen::guarded_threshold and
  /// screen::certified_bound, one vector for each certificate.
  [[nodiscard]] std::vector<std::vector<float>> bounds(
      const std::vector<plan::Certificate>& certificates);

 private:
  void bounds_of_groups(const std::vector<plan::ScreenOperand>& operands, int groups,
                        std::vector<std::vector<float>>& out);

  dosa_problem problem_;
  engine::Window window_;
  plan::KeySource keys_;
  plan::KeyTile tile_;
  plan::QueryPack query_;
  plan::QueryRows rows_;
  Placed memory_;
};

}  // namespace dosa::cli
