// SPDX-License-Identifier: Apache-2.0
// Everything the engine keeps for one row while its group is scanned.
#ifndef DOSA_ENGINE_ROW_STATE_HPP
#define DOSA_ENGINE_ROW_STATE_HPP

#include <cstdint>

#include "dosa/dosa.h"
#include "engine/schedule.hpp"
#include "numeric/bounds.hpp"
#include "plan/certificate.hpp"
#include "plan/envelope.hpp"
#include "plan/operands.hpp"
#include "plan/screen_operand.hpp"
#include "select/records.hpp"

namespace dosa::engine {

/// How a row's keys are treated.
enum class RowPath {
  kScoreAll,  // every key gets its exact score: rows without a certificate, mode `base`
  kAllHeads,  // every head of every key in the arithmetic of screening; exact where it may matter
  kScreen     // a few heads and a bound for the others, then all heads for the survivors
};

struct RowState {
  std::int64_t row = 0;
  Window window;  // visible keys
  Window ranked;  // visible keys that are not forced
  plan::QueryPack query;
  plan::QueryRows query_rows;  // kept only where a certificate may be made
  plan::Certificate certificate;
  plan::ActivationStatistics statistics;  // behind the certificate
  plan::ActivationStatistics seed_statistics;
  plan::Envelope envelope;
  plan::ScreenOperand operand;      // of kScreen
  plan::AllHeadsOperand all_heads;  // of kAllHeads, and of what survives kScreen
  select::RecordBuffer records;
  RowPath path = RowPath::kScoreAll;
  bool certifiable = false;      // finite query and weights, strength within N10
  int retained = 0;              // r that was chosen
  float fixed_threshold = 0.0F;  // DOSA_THRESHOLD_FIXED: after the seeds
  dosa_row_stats stats{};
  double slack_sum = 0.0;
  std::int64_t slack_count = 0;
  double threshold_sum = 0.0;  // over screened keys
  std::int64_t scanned = 0;    // keys met in the scan
  // Since the last look at whether screening pays
  std::int64_t recent_screened = 0;
  std::int64_t recent_survivors = 0;
  std::int64_t resume_after =
      0;  // keys still to pass with all heads before screening is tried again
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_ROW_STATE_HPP
