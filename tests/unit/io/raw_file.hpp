// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

#include "io/error.hpp"
#include "io/safetensors.hpp"

namespace dosa::test {

/// A file spelled by hand: any length prefix, any header, any data.
inline std::string raw_file(std::uint64_t header_length, const std::string& header,
                            std::size_t data_bytes) {
  std::string bytes(reinterpret_cast<const char*>(&header_length), sizeof header_length);
  return bytes + header + std::string(data_bytes, '\1');
}

/// The same with the header's true length.
inline std::string raw_file(const std::string& header, std::size_t data_bytes) {
  return raw_file(header.size(), header, data_bytes);
}

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

/// The error line of reading `file`; empty where it was accepted.
inline std::string refusal(const std::string& file) {
  try {
    const io::SafeTensors parsed = io::SafeTensors::parse(bytes_of(file));
    return "";
  } catch (const io::Error& error) {
    return error.what();
  }
}

/// An empty folder that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "dosa-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("no temporary folder " + name);
    }
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::size_t num_files() const {
    const auto begin = std::filesystem::directory_iterator(path_);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace dosa::test
