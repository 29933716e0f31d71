// SPDX-License-Identifier: Apache-2.0
// The state that a sequence keeps between its steps: numbers of tokens that scored well. A hint of
// which nothing is believed (dosa_decode.h).
#ifndef DOSA_ENGINE_DECODE_WITNESS_HPP
#define DOSA_ENGINE_DECODE_WITNESS_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dosa/dosa_decode.h"

namespace dosa::engine {

/// Tokens that a state remembers: the K winners and half as many runners-up. With the winners alone
/// the K-th best of them would be the worst, and one that dropped out would drag it down
/// (docs/measurements.md, Decode).
inline int witness_capacity(int topk) { return topk + (topk + 1) / 2; }
inline std::size_t witness_bytes(int topk) {
  return sizeof(std::uint32_t) * static_cast<std::size_t>(1 + witness_capacity(topk));
}

/// One state: a count, then so many ids, ascending. Two requests may name the same state by
/// mistake; relaxed atomics keep that a matter of speed.
class WitnessState {
 public:
  WitnessState(void* memory, int topk)
      : words_(static_cast<std::uint32_t*>(memory)), capacity_(witness_capacity(topk)) {}

  [[nodiscard]] bool exists() const { return words_ != nullptr; }

  /// Distinct tokens of the state in [0, length), ascending; ids holds witness_capacity().
  int read(std::int64_t length, std::int32_t* ids) const;
  /// Remembers `count` distinct ids, ascending, at most witness_capacity() of them.
  void write(const std::int32_t* ids, int count) const;
  /// Remembers the first of `count` ids that are not negative, as many as there is room for.
  void set(const std::int32_t* ids, std::int64_t count) const;

 private:
  [[nodiscard]] std::uint32_t word(int n) const {
    return std::atomic_ref<std::uint32_t>(words_[n]).load(std::memory_order_relaxed);
  }
  void set_word(int n, std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(words_[n]).store(value, std::memory_order_relaxed);
  }

  std::uint32_t* words_;
  int capacity_;
};

/// The state of request b; it does not exist where there is none.
WitnessState witness_of(const dosa_paged_problem& problem, std::int64_t b);

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_DECODE_WITNESS_HPP
