// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "io/error.hpp"
#include "io/header.hpp"
#include "io/json_text.hpp"

namespace dosa::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the format and this code are");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kHeaderAlignment = 8;
constexpr std::uint64_t kMaxExtent = std::numeric_limits<std::int64_t>::max();

std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) {
    return std::nullopt;
  }
  return a * b;
}

/// Bytes of a tensor, or nothing where they do not fit 64 bits or are no whole number.
template <typename Extent>
std::optional<std::uint64_t> tensor_bytes(DType dtype, const std::vector<Extent>& shape) {
  std::optional<std::uint64_t> bits = 1;
  for (const Extent extent : shape) {
    if (static_cast<std::uint64_t>(extent) > kMaxExtent) {
      return std::nullopt;
    }
    bits = checked_product(*bits, static_cast<std::uint64_t>(extent));
    if (!bits) {
      return std::nullopt;
    }
  }
  bits = checked_product(*bits, dtype_bits(dtype));
  if (!bits || *bits % 8 != 0) {
    return std::nullopt;
  }
  return *bits / 8;
}

std::string tensor_label(const std::string& name) { return "tensor " + printable(name); }

Tensor checked_tensor(HeaderEntry&& entry, std::uint64_t expected_begin,
                      std::span<const std::byte> data) {
  const std::string range =
      "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")";
  if (entry.begin > entry.end || entry.end > data.size()) {
    throw Error(tensor_label(entry.name), "data_offsets " + range,
                "a range in the " + std::to_string(data.size()) + " bytes of data");
  }
  if (entry.begin != expected_begin) {
    throw Error(
        tensor_label(entry.name), "data_offsets " + range,
        "a range that starts at " + std::to_string(expected_begin) + ", without overlap or hole");
  }
  const std::optional<std::uint64_t> bytes = tensor_bytes(entry.dtype, entry.shape);
  const std::uint64_t found = entry.end - entry.begin;
  if (!bytes || *bytes != found) {
    Tensor shown;  // a shape beyond the types is only ever printed
    shown.shape.assign(entry.shape.begin(), entry.shape.end());
    throw Error(tensor_label(entry.name), std::to_string(found) + " bytes",
                (bytes ? std::to_string(*bytes) : "more than 2^64 or a broken number of") +
                    " bytes for " + describe(entry.dtype, shown.shape));
  }
  return {std::move(entry.name),
          entry.dtype,
          {entry.shape.begin(), entry.shape.end()},
          data.subspan(entry.begin, found)};
}

void append_metadata(std::string& text, const Metadata& metadata) {
  append_json_string(text, kMetadataName);
  text += ":{";
  for (const auto& [name, value] : metadata) {
    text += text.back() == '{' ? "" : ",";
    append_json_string(text, name);
    text += ':';
    append_json_string(text, value);
  }
  text += '}';
}

void append_tensor(std::string& text, const Tensor& tensor, std::uint64_t begin,
                   std::uint64_t end) {
  text += text.back() == '{' ? "" : ",";
  append_json_string(text, tensor.name);
  text += ":{\"dtype\":";
  append_json_string(text, dtype_name(tensor.dtype));
  text += ",\"shape\":[";
  for (const std::int64_t extent : tensor.shape) {
    text += text.back() == '[' ? "" : ",";
    text += std::to_string(extent);
  }
  text += "],\"data_offsets\":[" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
}

}  // namespace

std::string describe(DType dtype, std::span<const std::int64_t> shape) {
  std::string text(dtype_name(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(static_cast<std::uint64_t>(shape[i]));
  }
  return text + "]";
}

SafeTensors SafeTensors::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    throw Error("header", std::to_string(bytes.size()) + " bytes", "at least 8");
  }
  std::uint64_t header_bytes = 0;
  std::copy_n(bytes.begin(), kLengthBytes,
              std::as_writable_bytes(std::span(&header_bytes, 1)).begin());
  const std::uint64_t most = std::min<std::uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header_bytes > most) {
    throw Error("header length", std::to_string(header_bytes),
                "at most " + std::to_string(most) +
                    (most == kMaxHeaderBytes ? "" : " (the bytes that follow it)"));
  }
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  Header header = parse_header({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                static_cast<std::size_t>(header_bytes)});

  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  SafeTensors file;
  file.metadata_ = std::move(header.metadata);
  file.tensors_.reserve(header.entries.size());
  std::uint64_t end = 0;
  for (HeaderEntry& entry : header.entries) {
    const std::uint64_t next = entry.end;
    file.tensors_.push_back(checked_tensor(std::move(entry), end, data));
    end = next;
  }
  if (end != data.size()) {
    throw Error("data", std::to_string(data.size()) + " bytes",
                std::to_string(end) + " as the tensors say");
  }
  return file;
}

SafeTensors SafeTensors::open(const std::string& path) {
  MappedFile mapping(path);
  try {
    SafeTensors file = parse(mapping.bytes());
    file.file_ = std::move(mapping);
    return file;
  } catch (const Error& error) {
    throw Error(printable(path) + ": " + error.what());
  }
}

const Tensor* SafeTensors::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::string encode_header(std::vector<Tensor>& tensors, const Metadata& metadata) {
  // Widest type first keeps each tensor aligned; names make the bytes independent of the caller.
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::string text = "{";
  if (!metadata.empty()) {
    append_metadata(text, metadata);
  }
  std::unordered_set<std::string_view> names = {kMetadataName};
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const std::optional<std::uint64_t> bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || *bytes != tensor.data.size()) {
      throw Error(tensor_label(tensor.name), std::to_string(tensor.data.size()) + " bytes",
                  "those of " + describe(tensor.dtype, tensor.shape));
    }
    if (!names.insert(tensor.name).second) {
      throw Error(tensor_label(tensor.name), "a name in use", "distinct names");
    }
    append_tensor(text, tensor, offset, offset + *bytes);
    offset += *bytes;
  }
  text += '}';
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

}  // namespace dosa::io
