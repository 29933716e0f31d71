// SPDX-License-Identifier: Apache-2.0
// One input at one shape on the device: all modes by turns, all must return the same ids.
#pragma once

#include <dosa/dosa_cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench.hpp"
#include "device/memory.hpp"
#include "device/problem.hpp"

namespace dosa::cli {

/// A function of somebody else's library that answers with device pointers:
///     int dosa_bench_peer_cuda_topk(const dosa_problem* problem, int32_t* ids, void* stream);
using DevicePeer = int (*)(const dosa_problem*, std::int32_t*, void*);

/// A way of answering: a mode of the engine, or a peer.
struct DeviceContender {
  std::string name;
  int mode = DOSA_MODE_AUTO;
  int heads = 0;  // r; 0: chosen
  int score_model = DOSA_MODEL_DEFAULT;
  DevicePeer peer = nullptr;
};

struct DeviceOutcome {
  DeviceContender contender;
  std::vector<double> seconds;                        // of a call, between two events
  std::vector<double> enqueue;                        // host seconds until the call returned
  std::map<std::string, std::vector<double>> phases;  // seconds, calls of their own
  dosa_cuda_counters counters{};
  std::size_t workspace_bytes = 0;
  int screen_rows = 0;     // R'; 0: nothing is screened; engine::kChosenOnDevice
  double in_common = 1.0;  // of a peer: the share of the first contender's ids it returned
};

struct DeviceCell {
  std::string input, source, domain;  // as StudyInput
  int layer = -1;
  std::uint64_t seed = 0;
  dosa_problem problem{};    // shapes only
  std::int64_t visible = 0;  // pairs of a row and a key in its window
  std::vector<DeviceOutcome> outcomes;
  std::size_t best = 0;  // the faster of the modes that score every key

  /// best / outcome, repetition by repetition.
  [[nodiscard]] std::vector<double> speedups(const DeviceOutcome& outcome) const;
};

class DeviceCells {
 public:
  /// `phase_calls` calls of each mode are timed phase by phase, after the others.
  DeviceCells(int repetitions, int phase_calls);

  /// `part` is the host's problem, `device` the same with device pointers.
  /// Throws: Failure where two modes differ; gpu::CudaError
  DeviceCell run(const StudyInput& input, const dosa_problem& part, const dosa_problem& device,
                 const std::vector<DeviceContender>& contenders);

 private:
  void compare(const StudyInput& input, const dosa_problem& part,
               const DeviceContender& first_contender, bool first, DeviceOutcome& outcome);
  void call(const dosa_problem& problem, DeviceOutcome& outcome);
  void first_call(const dosa_problem& problem, DeviceOutcome& outcome);
  void timed_call(const dosa_problem& problem, DeviceOutcome& outcome);
  void phase_calls(const dosa_problem& problem, DeviceOutcome& outcome);
  [[nodiscard]] dosa_output output(const dosa_problem& problem) const;

  int repetitions_;
  int phase_calls_;
  DeviceArray<std::byte> flush_;  // written before each call, larger than the L2 cache
  DeviceArray<std::byte> workspace_;
  DeviceArray<std::int32_t> ids_;
  PinnedArray<std::int32_t> expected_;  // ids of the first contender
  PinnedArray<std::int32_t> found_;     // of another
};

}  // namespace dosa::cli
