// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace dosa::cli {

/// A progress bar with the estimated remaining time, on stderr where that is a terminal, and
/// nothing elsewhere. The line is gone when the object is.
class Progress {
 public:
  explicit Progress(std::string label);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Lets the engine drive it; this object must outlive the call.
  void attach(dosa_options& options);
  void update(std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::int64_t done, std::int64_t total, Clock::time_point now);

  std::string label_;
  bool terminal_ = false;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

}  // namespace dosa::cli
