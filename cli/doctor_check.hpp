// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dosa::cli {

/// What the library answered: indices (Q,K) ascending and scores (Q,K), as dosa_topk writes them.
struct CheckedAnswer {
  std::vector<std::int32_t> indices;
  std::vector<float> scores;
};

/// The same by scoring every key in plain scalar code and sorting: no code of the library is used.
/// Absolute ids, ascending; no forced tokens. Cost: Q N H D multiplications.
[[nodiscard]] CheckedAnswer plain_topk(const dosa_problem& problem);

/// The first row in which ids or scores differ in any bit (NaNs are equal); -1 where none does.
[[nodiscard]] std::int64_t first_difference(const dosa_problem& problem, const CheckedAnswer& a,
                                            const CheckedAnswer& b);

struct CheckReport {
  std::int64_t problems = 0;
  std::int64_t calls = 0;     // each problem in every mode, on one thread and on all
  std::int64_t rows = 0;      // of all calls
  std::int64_t screened = 0;  // pairs of a query and a key that were met by a bound
  std::string difference;     // the first call that answered otherwise; empty where none did
  double seconds = 0;
};

/// Runs the library on small problems with ties, on order-free sums, on sums that depend on their
/// order and on a modelled workload, and compares ids and scores with plain_topk, bit by bit.
/// Throws: Failure where the library refuses a call.
[[nodiscard]] CheckReport check_exactness(std::int32_t threads);

}  // namespace dosa::cli
