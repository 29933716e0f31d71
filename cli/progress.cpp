// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "table.hpp"

namespace dosa::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuietTime = 400ms;  // a call that is over by then draws nothing
constexpr auto kTimeBetweenDraws = 100ms;
constexpr std::size_t kDefaultColumns = 80;
constexpr std::size_t kMostBar = 40;
constexpr std::size_t kLeastBar = 8;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

/// Whole seconds: an estimate has no more to say.
std::string coarse(double seconds) {
  constexpr double kMinute = 60;
  return seconds < kMinute ? fmt::format("{:.0f} s", seconds) : duration(seconds);
}

}  // namespace

Progress::Progress(std::string label, std::int64_t rows) : label_(std::move(label)), rows_(rows) {
  if (::isatty(STDERR_FILENO) == 1 && rows_ > 0) {
    drawer_ = std::jthread([this](const std::stop_token& stop) { draw_until(stop); });
  }
}

Progress::~Progress() = default;

void Progress::attach(dosa_options& options) {
  options.progress_user = this;
  options.progress = [](void* user, std::int64_t done, std::int64_t) {
    static_cast<Progress*>(user)->report(done);
  };
}

void Progress::report(std::int64_t done) {
  done_after_ = Clock::now() - start_;
  done_ = done;
}

void Progress::draw_until(const std::stop_token& stop) {
  const auto stopped_within = [&](Clock::duration time) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, stop, time, [&] { return stop.stop_requested(); });
  };
  if (stopped_within(kQuietTime)) {
    return;
  }
  do {
    draw(done_);
  } while (!stopped_within(kTimeBetweenDraws));
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::draw(std::int64_t done) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(rows_), 0.0, 1.0);
  std::string time = coarse(elapsed) + " so far";
  if (share > 0) {
    const double rate_time = std::chrono::duration<double>(done_after_.load()).count();
    time = coarse(std::max(0.0, rate_time / share - elapsed)) + " left";
  }
  const std::string counts =
      fmt::format("{:3.0f} %  {}/{} rows  {}", 100 * share, grouped(done), grouped(rows_), time);
  const std::size_t columns = terminal_columns();
  const std::size_t taken = label_.size() + counts.size() + sizeof(" []  ");
  std::string line = label_ + " ";
  if (columns >= taken + kLeastBar) {
    const std::size_t length = std::min(kMostBar, columns - taken);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(length));
    line += '[' + std::string(filled, '#') + std::string(length - filled, '.') + "] ";
  }
  line += counts;
  line.resize(std::min(line.size(), columns - 1));
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
}

}  // namespace dosa::cli
