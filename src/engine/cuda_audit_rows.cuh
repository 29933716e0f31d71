// SPDX-License-Identifier: Apache-2.0
// The audit of stored bounds and scores: row by row, every visible key.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/cuda_run.cuh"

namespace dosa::engine {

constexpr int kAuditParts = 8;  // shares of a row's keys, a CTA each

struct AuditRows {
  const KeyBound* bounds;  // (rows, N), `bounds_stride` apart
  int64_t bounds_stride;
  const float* scores;  // (rows, N), `scores_stride` apart
  int64_t scores_stride;
  const int32_t* k_start;  // of the first row; null: 0
  const int32_t* k_end;    // null: N
  int num_keys;
  const int32_t* ids;      // (rows, K) ascending: the answer to judge; null: none
  const float* id_scores;  // (rows, K)
  int topk;
  int forced_first;  // keys at both ends of a row that rank as if they scored +Inf, and that no
  int forced_last;   // bound is asked about
  int rows;
};

/// What one share of a row's visible keys shows.
struct AuditPart {
  int32_t visible;     // forced keys among them
  int32_t bounded;     // with a bound that is a number below +Inf
  int32_t rejected;    // bounded, below the threshold of the answer's last key
  int32_t violations;  // bounded, below what the key's own score would make the threshold
  int32_t better;      // keys that rank no lower than the answer's last
  int32_t wrong;       // 1: the answer's ids or scores are not those of keys in this order
  int32_t margin_key;  // where U - threshold(s) is least; -1: nowhere
  int32_t used_key;    // where the score used most of the allowance; -1: nowhere
  double margin;
  float bound, score;  // at margin_key
  float used;          // (s - (U - allowance)) / allowance at used_key
};

/// Fills parts (rows, kAuditParts). The answer of a row is right if no part is wrong and `better`
/// adds up to the number of its ids: then they are the best, in the contract's order, and no
/// selection had to be trusted.  Error: cudaError_t of the launch
cudaError_t launch_audit_rows(const AuditRows& params, AuditPart* parts, cudaStream_t stream);

}  // namespace dosa::engine
