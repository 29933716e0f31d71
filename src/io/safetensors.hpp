// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dtype.hpp"
#include "io/mapped_file.hpp"

namespace dosa::io {

/// One tensor of a file, or one to be written. Row-major, little-endian, no alignment promised.
struct Tensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

using Metadata = std::map<std::string, std::string>;

/// "F32 [16, 4]".
[[nodiscard]] std::string describe(DType dtype, std::span<const std::int64_t> shape);

/// A safetensors file, checked in full before anything of it is handed out:
///   u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}}, tensor
///   data.
/// Guarantee: names are distinct; each data span lies in the file and has exactly the bytes of its
///            shape; the spans cover the data without a hole or an overlap.
class SafeTensors {
 public:
  /// Maps and checks `path`.  Throws: Error naming the file.
  [[nodiscard]] static SafeTensors open(const std::string& path);

  /// Checks `bytes`, which must outlive the result.  Throws: Error.
  [[nodiscard]] static SafeTensors parse(std::span<const std::byte> bytes);

  /// In the order of their data.
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  /// The tensor of that name, or null.
  [[nodiscard]] const Tensor* find(std::string_view name) const;

 private:
  MappedFile file_;
  std::vector<Tensor> tensors_;
  Metadata metadata_;
};

/// The length prefix and the padded JSON header of a file that holds `tensors`; reorders them to
/// the order in which their data has to follow.
/// Throws: Error for a repeated name, or data that has not the bytes of its shape.
[[nodiscard]] std::string encode_header(std::vector<Tensor>& tensors, const Metadata& metadata);

}  // namespace dosa::io
