// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"

namespace dosa::io {

/// A file that appears under its name complete or not at all. It is written beside the target,
/// synchronised, and renamed over it; until then, and after any failure, the target is as it was.
///
///   OutputFile output("top.safetensors");   // fails now where it could not be written
///   output.reserve(expected_bytes);         // fails now where the disk is too full
///   ... the computation ...
///   output.commit(tensors, metadata);
class OutputFile {
 public:
  /// Creates the hidden file. A link is followed; anything but a regular file is refused.
  /// Throws: Error naming the file and the reason.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes what was not committed.
  ~OutputFile();

  /// Sets aside room for `bytes`, where the file system can.  Throws: Error.
  void reserve(std::uint64_t bytes);

  /// Writes a safetensors file of `tensors` and gives it its name.  Throws: Error.
  void commit(std::vector<Tensor> tensors, const Metadata& metadata);
  /// Writes `text` and gives it its name.  Throws: Error.
  void commit(std::string_view text);

 private:
  void write_all(const void* data, std::size_t size);
  void finish(std::size_t size);
  [[noreturn]] void fail(int error_number, const std::string& expected) const;

  std::string shown_;      // as given by the caller
  std::string target_;     // links resolved
  std::string temporary_;  // beside the target
  int fd_ = -1;
  int slot_ = -1;  // in the list for signals
};

/// Makes SIGINT, SIGTERM, SIGHUP and SIGQUIT remove uncommitted files before they end the process,
/// and turns the signal for an exceeded file size limit into an error of the write. For programs; a
/// library leaves signals alone.
void remove_uncommitted_on_signals();

}  // namespace dosa::io
