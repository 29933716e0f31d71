// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dosa::cli {

/// 1234567 as "1,234,567".
[[nodiscard]] std::string grouped(std::int64_t value);

/// Part of whole as "12.3 %"; "-" where the whole is 0.
[[nodiscard]] std::string percent(double part, double whole);

/// A count with a magnitude: "3.42 G", "17.0 k", "12".
[[nodiscard]] std::string scaled(double value);

/// "1.23 ms", "4.5 s", "2 min 03 s".
[[nodiscard]] std::string duration(double seconds);

/// "2.4 MB" (10^6 bytes).
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

/// Columns that line up. A column of numbers is aligned to the right.
class Table {
 public:
  enum class Align { kLeft, kRight };

  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  /// One cell per column; fewer leave the rest empty.
  void add(std::vector<std::string> cells);
  /// An empty line.
  void skip() { add({}); }
  /// Lines that end in a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace dosa::cli
