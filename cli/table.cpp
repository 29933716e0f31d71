// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace dosa::cli {
namespace {

constexpr std::size_t kGroup = 3;
constexpr int kSecondsPerMinute = 60;
constexpr int kSecondsPerHour = 3600;
constexpr double kThousand = 1000;

/// Columns that a text takes on a terminal: bytes that do not continue a UTF-8 sequence.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

/// Three significant digits.
std::string three_digits(double value) {
  const int decimals = value < 10 ? 2 : (value < 100 ? 1 : 0);
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + kGroup;) {
    at -= kGroup;
    digits.insert(at, ",");
  }
  return digits;
}

std::string percent(double part, double whole) {
  if (whole == 0) {
    return "-";
  }
  const double share = 100 * part / whole;
  return fmt::format("{:.{}f} %", share, share != 0 && share < 1 ? 2 : 1);
}

std::string scaled(double value) {
  static constexpr std::array<const char*, 5> kUnits = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (value >= kThousand && unit + 1 < kUnits.size()) {
    value /= kThousand;
    ++unit;
  }
  return (unit == 0 ? fmt::format("{:.0f}", value) : three_digits(value)) + kUnits[unit];
}

std::string duration(double seconds) {
  if (seconds < 1e-3) {
    return three_digits(seconds * 1e6) + " us";
  }
  if (seconds < 1) {
    return three_digits(seconds * 1e3) + " ms";
  }
  if (seconds < kSecondsPerMinute) {
    return three_digits(seconds) + " s";
  }
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < kSecondsPerHour) {
    return fmt::format("{} min {:02} s", whole / kSecondsPerMinute, whole % kSecondsPerMinute);
  }
  return fmt::format("{} h {:02} min", whole / kSecondsPerHour,
                     whole % kSecondsPerHour / kSecondsPerMinute);
}

std::string bytes_text(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes)) + (bytes < 1000 ? " B" : "B");
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], width(row[column]));
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - width(row[column]), ' ');
      line += column == 0 ? "" : "  ";
      line += columns_[column] == Align::kRight ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace dosa::cli
