// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace dosa::cli {

/// A progress bar with the estimated remaining time, on stderr where that is a terminal, and
/// nothing elsewhere. A thread of its own draws it, so that it lives between two reports of the
/// engine, and the engine never waits for the terminal. The line is gone when the object is.
class Progress {
 public:
  Progress(std::string label, std::int64_t rows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Lets the engine drive it; this object must outlive the call.
  void attach(dosa_options& options);

  /// Says that `done` rows are finished; not decreasing.
  void report(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  void draw_until(const std::stop_token& stop);
  void draw(std::int64_t done) const;

  std::string label_;
  std::int64_t rows_;
  Clock::time_point start_ = Clock::now();
  std::atomic<std::int64_t> done_{0};
  std::atomic<Clock::duration> done_after_{Clock::duration::zero()};  // when done_ was reported
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread drawer_;  // last: it uses all of the above
};

}  // namespace dosa::cli
