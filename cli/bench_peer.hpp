// SPDX-License-Identifier: Apache-2.0
// Somebody else's indexer, to be timed beside ours: a shared library with one C function.
//
//     #include <dosa/dosa.h>
//     int dosa_bench_peer_topk(const dosa_problem* problem, int threads, int32_t* ids);
//
// `problem` is a checked problem as dosa_topk() takes it. ids (Q, K) int32, rows without gaps: the
// ids of each row's best keys in any order, -1 where there are no more. Returns 0, or a number of
// its own that says what went wrong. Everything that a call needs is part of its time.
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dosa::bench {

/// A function of a peer's library, which stays loaded until the process ends.
struct PeerFunction {
  std::string name;  // of the peer
  void* address;
};

/// `spec`: NAME=FILE.
/// Throws: cli::Failure where the library cannot be loaded or has no such function.
[[nodiscard]] PeerFunction load_peer(const std::string& spec, const char* function);

class Peer {
 public:
  /// As load_peer().
  explicit Peer(const std::string& spec);

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Throws: cli::Failure where it returns anything but 0.
  void topk(const dosa_problem& problem, int threads, std::int32_t* ids) const;

 private:
  using TopK = int (*)(const dosa_problem*, int, std::int32_t*);

  std::string name_;
  TopK topk_ = nullptr;
};

/// Share of the ids >= 0 of `expected` (Q, K) that are in the same row of `found`; 1 where none is.
[[nodiscard]] double ids_in_common(const dosa_problem& problem,
                                   const std::vector<std::int32_t>& expected,
                                   const std::vector<std::int32_t>& found);

}  // namespace dosa::bench
