// SPDX-License-Identifier: Apache-2.0
#include "engine/verify.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/engine.hpp"

namespace dosa::engine {
namespace {

struct Answer {
  std::vector<std::int32_t> indices;
  std::vector<float> scores;
  dosa_stats stats{};
};

Answer answer(const dosa_problem& problem, const dosa_options& options, Audit* audit) {
  const auto topk = static_cast<std::size_t>(problem.topk);
  const auto cells = static_cast<std::size_t>(problem.num_queries) * topk;
  Answer result{std::vector<std::int32_t>(cells), std::vector<float>(cells), {}};
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = result.indices.data();
  output.indices_stride = problem.topk;
  output.scores = result.scores.data();
  output.scores_stride = problem.topk;
  output.stats = &result.stats;
  result.stats.struct_size = sizeof result.stats;
  std::vector<std::byte> workspace(layout(problem, options).bytes);
  engine::topk(problem, options, output, workspace.data(), audit);
  return result;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

void verify(const dosa_problem& problem, const dosa_options& options, dosa_verification& report) {
  Audit audit;
  const Answer pruned = answer(problem, options, &audit);
  dosa_options every_key = options;
  every_key.mode = DOSA_MODE_BASE;
  every_key.workspace_limit =
      std::numeric_limits<std::uint64_t>::max();  // its own, whatever it takes
  const Answer dense = answer(problem, every_key, nullptr);
  report.rows = problem.num_queries;
  report.rows_different = 0;
  report.first_different = -1;
  const auto topk = static_cast<std::size_t>(problem.topk);
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * topk);
    const auto end = begin + static_cast<std::ptrdiff_t>(topk);
    const bool same = std::equal(pruned.indices.begin() + begin, pruned.indices.begin() + end,
                                 dense.indices.begin() + begin) &&
                      std::equal(pruned.scores.begin() + begin, pruned.scores.begin() + end,
                                 dense.scores.begin() + begin, same_bits);
    if (same) continue;
    ++report.rows_different;
    if (report.first_different < 0) report.first_different = row;
  }
  report.rejected = audit.rejected;
  report.violations = audit.violations;
  report.min_margin = audit.min_margin;
  report.witness_row = audit.row;
  report.witness_key = audit.key;
  report.witness_bound = audit.bound;
  report.witness_score = audit.score;
  report.stats = pruned.stats;
}

}  // namespace dosa::engine
