// SPDX-License-Identifier: Apache-2.0
// Before the scan: a scored sample, seeds, and each row's certificate.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/row_group.hpp"

namespace dosa::engine {
namespace {

// Widths that `auto` considers, in screening rows R' of r retained heads and one aggregate.
constexpr int kWidths[] = {4, 8, 12, 16, 20, 24, 32, 40, 48, 64};
// Screening must promise at least this much before it is chosen over scoring every key.
constexpr double kWorthwhile = 0.93;
constexpr int kMinSample = 64;

bool contains(const Window& window, std::int32_t id) {
  return id >= window.begin && id < window.end;
}

}  // namespace

/// Chooses and prepares the sample of a group: the same keys for all its rows.
void RowGroup::prepare_sample(Window window) {
  const std::int64_t wanted =
      std::clamp<std::int64_t>(window.length() / 8, kMinSample, kSampleKeys);
  num_sample_ = static_cast<int>(std::min(wanted, window.length()));
  spread_sample(window, num_sample_, sample_ids_);
  for (int begin = 0; begin < num_sample_; begin += plan::kTileKeys) {
    plan::build_tile(keys_, 0, sample_ids_ + begin, std::min(plan::kTileKeys, num_sample_ - begin),
                     sample_[begin / plan::kTileKeys]);
  }
  std::copy(sample_ids_, sample_ids_ + num_sample_, known_ids_);
  num_known_ = num_sample_;
}

/// Scores the sample for one row and offers what the row may see.
void RowGroup::score_sample(RowState& state) {
  for (int begin = 0; begin < num_sample_; begin += plan::kTileKeys) {
    const plan::KeyTile& tile = sample_[begin / plan::kTileKeys];
    refine::score_keys(state.query, tile, nullptr, tile.count, sample_scores_ + begin,
                       sample_active_ + begin);
    for (int n = begin; n < begin + tile.count; ++n) {
      if (!contains(state.ranked, sample_ids_[n])) {
        sample_scores_[n] = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      state.records.offer(sample_scores_[n], sample_ids_[n]);
      ++state.stats.fully_scored;
    }
    state.records.reserve();
  }
  state.records.reduce();
}

/// The pilot's winners, less the sample, become the seeds of the group's other rows.
void RowGroup::take_seeds(const RowState& pilot) {
  const std::int32_t* sample_end = sample_ids_ + num_sample_;
  num_seeds_ = 0;
  for (int n = 0; n < pilot.records.count(); ++n) {
    const std::int32_t id = record_id(pilot.records.data()[n]);
    if (!std::binary_search<const std::int32_t*>(sample_ids_, sample_end, id))
      seed_ids_[num_seeds_++] = id;
  }
  std::sort(seed_ids_, seed_ids_ + num_seeds_);
  std::merge(sample_ids_, sample_ids_ + num_sample_, seed_ids_, seed_ids_ + num_seeds_, known_ids_);
  num_known_ = num_sample_ + num_seeds_;
}

/// Scores the seeds for every row that may see them: any set is valid, since each row scores them
/// itself, once, inside its own window.
void RowGroup::score_seeds(RowState** rows, int count) {
  refine::ActiveHeads active[plan::kTileKeys];
  plan::KeyTile list = tile_;  // the same memory, without the columns that only screening needs
  list.columns = nullptr;
  for (int begin = 0; begin < num_seeds_; begin += plan::kTileKeys) {
    const int length = std::min(plan::kTileKeys, num_seeds_ - begin);
    plan::build_tile(keys_, 0, seed_ids_ + begin, length, list);
    for (int r = 0; r < count; ++r) {
      RowState& state = *rows[r];
      refine::score_keys(state.query, list, nullptr, length, scores_, active);
      for (int n = 0; n < length; ++n) {
        if (!contains(state.ranked, list.id(n))) continue;
        state.records.offer(scores_[n], list.id(n));
        ++state.stats.fully_scored;
        if (options_.statistics != DOSA_STATISTICS_SEEDS) continue;
        ++state.seed_statistics.samples;
        for (int h = 0; h < problem_.num_heads; ++h) {
          state.seed_statistics.active[static_cast<std::size_t>(h)] +=
              static_cast<std::int32_t>(active[n].word[h / 64] >> (h % 64) & 1);
        }
      }
      state.records.reserve();
    }
  }
  for (int r = 0; r < count; ++r) rows[r]->records.reduce();
}

/// Activation frequencies on the sample: all of it, or its best quarter without the winners, whose
/// negative heads are untypically quiet (docs/architecture.md).
plan::ActivationStatistics RowGroup::sample_statistics(const RowState& state) const {
  plan::ActivationStatistics statistics;
  if (options_.statistics == DOSA_STATISTICS_SEEDS && state.seed_statistics.samples > 0) {
    return state.seed_statistics;
  }
  float ordinary[kSampleKeys];
  int count = 0;
  const float threshold = state.records.threshold();
  const bool hard = options_.statistics != DOSA_STATISTICS_RANDOM;
  const auto counts = [&](float score) {
    if (std::isnan(score)) return false;
    return !hard || score < threshold || std::isinf(threshold);
  };
  for (int n = 0; n < num_sample_; ++n) {
    if (counts(sample_scores_[n])) ordinary[count++] = sample_scores_[n];
  }
  if (count == 0) return statistics;
  float least = -std::numeric_limits<float>::infinity();
  if (hard) {
    float* cut = ordinary + count - 1 - count / 4;
    std::nth_element(ordinary, cut, ordinary + count);
    least = *cut;
  }
  for (int n = 0; n < num_sample_; ++n) {
    if (!counts(sample_scores_[n]) || sample_scores_[n] < least) continue;
    ++statistics.samples;
    for (int h = 0; h < problem_.num_heads; ++h) {
      statistics.active[static_cast<std::size_t>(h)] +=
          static_cast<std::int32_t>(sample_active_[n].word[h / 64] >> (h % 64) & 1);
    }
  }
  return statistics;
}

/// Makes the certificate and its operand.
void RowGroup::certify(RowState& state, int retained,
                       const plan::ActivationStatistics& statistics) {
  plan::CertificateOptions options;
  options.retained = retained;
  options.retain = static_cast<dosa_retain>(options_.retain);
  options.projection = options_.projection != 0;
  options.allowance = static_cast<dosa_allowance>(options_.allowance);
  options.groups = options_.allowance_groups;
  options.aggregate = static_cast<dosa_aggregate>(options_.aggregate);
  state.retained = retained;
  state.statistics = statistics;
  state.certificate =
      plan::make_certificate(state.query_rows, state.query.weights, problem_.num_heads,
                             problem_.head_dim, statistics, options);
  state.envelope =
      plan::build_operand(state.certificate, state.query_rows, state.query.weights, state.operand);
}

/// Every head of every key, or exact scores where the row may not be screened.
void RowGroup::plan_all_heads(RowState& state) {
  if (state.certifiable) {
    const plan::Envelope envelope =
        plan::build_all_heads(state.query_rows, state.query.weights, problem_.num_heads,
                              problem_.head_dim, scratch_operand_, state.all_heads);
    state.certifiable = envelope.strength <= plan::kRowStrengthLimit;
  }
  state.path = state.certifiable ? RowPath::kAllHeads : RowPath::kScoreAll;
  state.stats.fallback = state.certifiable ? 0 : 1;
}

/// Predicted cost per key of screening with the certificate, from the sample: the threshold after a
/// share f of the keys is about the score exceeded by K / (f * visible) of them. Rows with seeds
/// start with a threshold that others reach late in their scan.
Estimate RowGroup::predicted_cost(const RowState& state) {
  constexpr int kSteps = 8;
  const double first = seeded_ ? 0.5 : 0.0;
  float ranked[kSampleKeys];
  float bounds[kSampleKeys];
  int count = 0;
  for (int begin = 0; begin < num_sample_; begin += plan::kTileKeys) {
    const plan::KeyTile& tile = sample_[begin / plan::kTileKeys];
    screen::screen_tile(state.operand, tile, LowerBound(0.0F), bounds_);
    for (int n = 0; n < tile.count; ++n) {
      if (std::isnan(sample_scores_[begin + n])) continue;
      ranked[count] = sample_scores_[begin + n];
      bounds[count++] = screen::certified_bound(bounds_[n]).value;
    }
  }
  const double screen = cost_.screen(state.operand.rows, problem_.head_dim).value;
  const double refine = cost_.refine(problem_.num_heads, problem_.head_dim).value;
  if (count < kMinSample) return Estimate(screen + refine);
  std::sort(ranked, ranked + count, std::greater<>());
  std::sort(bounds, bounds + count, std::greater<>());
  double survival = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    const double share = first + (1 - first) * (step + 0.5) / kSteps;
    const double seen = share * static_cast<double>(state.ranked.length());
    const double rank = problem_.topk / seen * count;
    if (rank >= count) {
      survival += 1.0;
      continue;
    }
    const float threshold = ranked[static_cast<int>(rank)];
    survival +=
        static_cast<double>(std::upper_bound(bounds, bounds + count, threshold, std::greater<>()) -
                            bounds) /
        count;
  }
  return Estimate(screen + survival / kSteps * refine);
}

/// Tries the tile widths on the sample and leaves the cheapest certificate, or passes every key
/// with all heads.
void RowGroup::choose_retained(RowState& state, const plan::ActivationStatistics& statistics) {
  double best = kWorthwhile * cost_.refine(problem_.num_heads, problem_.head_dim).value;
  int retained = 0;
  for (const int width : kWidths) {
    if (width - 1 >= problem_.num_heads) break;
    certify(state, width - 1, statistics);
    const double cost = predicted_cost(state).value;
    if (cost >= best) continue;
    best = cost;
    retained = width - 1;
  }
  if (retained == 0) return;
  certify(state, retained, statistics);
  state.path = RowPath::kScreen;
}

/// Decides how the row is treated and makes its certificate. `pilot` has already decided for its
/// group where r is free.
void RowGroup::plan_row(RowState& state, const RowState* pilot) {
  state.stats.first_threshold = state.fixed_threshold = state.records.threshold();
  plan_all_heads(state);
  if (!state.certifiable) return;
  const bool automatic = options_.mode == DOSA_MODE_AUTO && options_.heads == 0 && !inspecting_;
  const bool follow = pilot != nullptr && pilot->certifiable;
  if (follow && automatic && pilot->path == RowPath::kAllHeads) return;
  const plan::ActivationStatistics statistics = sample_statistics(state);
  int retained = options_.heads;
  if (options_.heads == 0 && follow) retained = pilot->retained;
  if (retained == 0) {
    choose_retained(state, statistics);
    if (state.path == RowPath::kScreen || automatic) return;
    retained = (problem_.num_heads + 1) / 2;  // asked to screen although it does not pay
  }
  certify(state, std::clamp(retained, 1, problem_.num_heads), statistics);
  state.path = RowPath::kScreen;
}

}  // namespace dosa::engine
