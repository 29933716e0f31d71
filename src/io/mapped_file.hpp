// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dosa::io {

/// A regular file mapped for reading. The mapping stays valid when the name is removed or replaced;
/// a file that is cut short by someone else while it is read ends the process (SIGBUS), as for
/// every mapping.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws: Error naming the file and the reason.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dosa::io
