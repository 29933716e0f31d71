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

constexpr auto kQuietTime = 300ms;  // a call that is over by then draws nothing
constexpr auto kTimeBetweenDraws = 80ms;
constexpr std::size_t kDefaultColumns = 80;
constexpr std::size_t kMostBar = 40;
constexpr std::size_t kLeastBar = 8;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

Progress::~Progress() {
  if (drawn_) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

void Progress::attach(dosa_options& options) {
  if (!terminal_) {
    return;
  }
  options.progress_user = this;
  options.progress = [](void* user, std::int64_t done, std::int64_t total) {
    static_cast<Progress*>(user)->update(done, total);
  };
}

void Progress::update(std::int64_t done, std::int64_t total) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || total <= 0 || now - start_ < kQuietTime ||
      (drawn_ && now - last_draw_ < kTimeBetweenDraws)) {
    return;
  }
  draw(done, total, now);
  last_draw_ = now;
  drawn_ = true;
}

void Progress::draw(std::int64_t done, std::int64_t total, Clock::time_point now) {
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string left = share > 0 ? duration(elapsed / share * (1 - share)) + " left" : "";
  const std::string counts =
      fmt::format("{:3.0f} %  {}/{} rows  {}", 100 * share, grouped(done), grouped(total), left);
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
