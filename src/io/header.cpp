// SPDX-License-Identifier: Apache-2.0
#include "io/header.hpp"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "io/error.hpp"

namespace dosa::io {
namespace {

using Json = nlohmann::json;

/// Reads the header event by event: a document tree would silently keep one of two equal names and
/// would turn a number beyond 64 bits into a float.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  Header take() { return std::move(header_); }

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return refuse(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return refuse(text); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShapeItem) {
      header_.entries.back().shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsetItem && num_offsets_ < 2) {
      HeaderEntry& entry = header_.entries.back();
      (num_offsets_ == 0 ? entry.begin : entry.end) = value;
      ++num_offsets_;
      return true;
    }
    return refuse(place_ == Place::kOffsetItem ? "a third number" : std::to_string(value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      header_.metadata[field_] = std::move(value);
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ == Place::kDType) {
      const std::optional<DType> dtype = find_dtype(value);
      if (!dtype) {
        return refuse(printable(value));
      }
      header_.entries.back().dtype = *dtype;
      place_ = Place::kTensor;
      return true;
    }
    return refuse("the string " + printable(value));
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTopValue && name_ == kMetadataName) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTopValue) {
      place_ = Place::kTensor;
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
      header_.entries.emplace_back().name = name_;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(value).second) {
        throw Error("header", "the name " + printable(value) + " twice", "distinct names");
      }
      name_ = std::move(value);
      place_ = Place::kTopValue;
    } else if (place_ == Place::kMetadata) {
      if (header_.metadata.count(value) != 0) {
        return refuse("the name " + printable(value) + " twice");
      }
      field_ = std::move(value);
      place_ = Place::kMetadataValue;
    } else {
      start_field(value);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (!seen_dtype_ || !seen_shape_ || !seen_offsets_) {
        return refuse(!seen_dtype_ ? "no dtype" : (!seen_shape_ ? "no shape" : "no data_offsets"));
      }
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItem;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItem;
      num_offsets_ = 0;
    } else {
      return refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsetItem && num_offsets_ != 2) {
      return refuse("an array of " + std::to_string(num_offsets_));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    throw Error("header", "invalid JSON at byte " + std::to_string(position),
                "one JSON object of tensors");
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kDType,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetItem,
    kEnd,
  };

  void start_field(const std::string& field) {
    bool* seen = nullptr;
    if (field == "dtype") {
      seen = &seen_dtype_;
      place_ = Place::kDType;
    } else if (field == "shape") {
      seen = &seen_shape_;
      place_ = Place::kShape;
    } else if (field == "data_offsets") {
      seen = &seen_offsets_;
      place_ = Place::kOffsets;
    } else {
      refuse("the field " + printable(field));
    }
    if (*seen) {
      place_ = Place::kTensor;
      refuse("the field " + printable(field) + " twice");
    }
    *seen = true;
  }

  /// Returns bool so that an event handler can end with it.
  [[noreturn]] bool refuse(const std::string& found) const {
    const bool top = place_ == Place::kStart || place_ == Place::kTop || place_ == Place::kEnd;
    throw Error(top ? "header" : "tensor " + printable(name_), found, expected());
  }

  [[nodiscard]] std::string_view expected() const {
    switch (place_) {
      case Place::kTopValue:
        return "an object with dtype, shape and data_offsets";
      case Place::kMetadata:
        return "distinct names with string values";
      case Place::kMetadataValue:
        return "a string";
      case Place::kTensor:
        return "dtype, shape and data_offsets once each";
      case Place::kDType:
        return "a dtype name such as F8_E4M3 or F32";
      case Place::kShape:
      case Place::kShapeItem:
        return "a shape of unsigned integers";
      case Place::kOffsets:
      case Place::kOffsetItem:
        return "data_offsets of two unsigned integers";
      default:
        return "one JSON object of tensors";
    }
  }

  Header header_;
  std::unordered_set<std::string> names_;
  std::string name_;   // of the tensor at hand
  std::string field_;  // of the metadata entry at hand
  Place place_ = Place::kStart;
  int num_offsets_ = 0;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
};

}  // namespace

Header parse_header(std::string_view json) {
  // The format wants the brace first; the JSON reader would skip blanks and a byte order mark.
  if (json.empty() || json.front() != '{') {
    throw Error("header", json.empty() ? "nothing" : printable(json.substr(0, 1)), "'{'");
  }
  // The JSON reader would take a NUL for the end and ignore what follows.
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos) {
    throw Error("header", "a NUL at byte " + std::to_string(nul), "JSON text");
  }
  HeaderHandler handler;
  Json::sax_parse(json.begin(), json.end(), &handler);
  return handler.take();
}

}  // namespace dosa::io
