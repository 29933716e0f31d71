// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_witness.hpp"

#include <algorithm>

namespace dosa::engine {

int WitnessState::read(std::int64_t length, std::int32_t* ids) const {
  const auto stored = std::min(word(0), static_cast<std::uint32_t>(capacity_));
  int count = 0;
  bool ascending = true;
  for (std::uint32_t n = 0; n < stored; ++n) {
    const std::uint32_t id = word(1 + static_cast<int>(n));
    if (id >= static_cast<std::uint64_t>(length)) continue;
    ids[count] = static_cast<std::int32_t>(id);
    ascending = ascending && (count == 0 || ids[count] > ids[count - 1]);
    ++count;
  }
  if (ascending) return count;
  std::sort(ids, ids + count);
  return static_cast<int>(std::unique(ids, ids + count) - ids);
}

void WitnessState::write(const std::int32_t* ids, int count) const {
  set_word(0, static_cast<std::uint32_t>(count));
  for (int n = 0; n < count; ++n) set_word(1 + n, static_cast<std::uint32_t>(ids[n]));
}

void WitnessState::set(const std::int32_t* ids, std::int64_t count) const {
  int stored = 0;
  for (std::int64_t n = 0; n < count && stored < capacity_; ++n) {
    if (ids[n] >= 0) set_word(1 + stored++, static_cast<std::uint32_t>(ids[n]));
  }
  std::sort(words_ + 1, words_ + 1 + stored);  // read() is spared the sorting, step by step
  set_word(0, static_cast<std::uint32_t>(stored));
}

WitnessState witness_of(const dosa_paged_problem& problem, std::int64_t b) {
  const std::int64_t index = problem.witness_index != nullptr ? problem.witness_index[b] : b;
  const bool exists = problem.witnesses != nullptr && index >= 0 && index < problem.witness_count;
  auto* memory = static_cast<std::byte*>(problem.witnesses);
  return {exists ? memory + index * problem.witness_stride : nullptr, problem.topk};
}

}  // namespace dosa::engine
