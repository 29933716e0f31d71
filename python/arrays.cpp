// SPDX-License-Identifier: Apache-2.0
#include "arrays.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace dosa::python {
namespace {

// DLDeviceType: ordinary memory, and host memory that a device runtime allocated.
constexpr int kHost = 1;
constexpr int kCudaHost = 3;
constexpr int kRocmHost = 11;
// Memory of a CUDA device, and memory that moves between it and the host.
constexpr int kCuda = 2;
constexpr int kCudaManaged = 13;

// DLDataTypeCode of DLPack 1.1 (dlpack.h, dmlc/dlpack).
constexpr int kInt = 0;
constexpr int kUInt = 1;
constexpr int kFloat = 2;
constexpr int kBfloat = 4;
constexpr int kE4m3fn = 10;

/// Nothing for what neither engine reads.
std::optional<Place> place_of(int type) {
  switch (type) {
    case kHost:
    case kCudaHost:
    case kRocmHost:
      return Place::kHost;
    case kCuda:
    case kCudaManaged:
      return Place::kDevice;
    default:
      return std::nullopt;
  }
}

std::string device_name(int type) {
  switch (type) {
    case kHost:
    case kCudaHost:
    case kRocmHost:
      return "host memory";
    case kCuda:
      return "a CUDA device";
    case 10:
      return "a ROCm device";
    case kCudaManaged:
      return "CUDA managed memory";
    default:
      return "device type " + std::to_string(type) + " of DLPack";
  }
}

std::string type_name(const Array& array) {
  static constexpr const char* kNames[] = {"int",           "uint",
                                           "float",         "opaque",
                                           "bfloat",        "complex",
                                           "bool",          "float8_e3m4",
                                           "float8_e4m3",   "float8_e4m3b11fnuz",
                                           "float8_e4m3fn", "float8_e4m3fnuz",
                                           "float8_e5m2",   "float8_e5m2fnuz",
                                           "float8_e8m0fnu"};
  constexpr int kCount = static_cast<int>(std::size(kNames));
  std::string name = array.type_code >= 0 && array.type_code < kCount
                         ? kNames[array.type_code]
                         : "DLPack type code " + std::to_string(array.type_code);
  if (array.type_code >= 0 && array.type_code <= 5) name += std::to_string(array.type_bits);
  if (array.lanes != 1) name += "x" + std::to_string(array.lanes);
  return name;
}

bool has_type(const Array& array, Element element) {
  if (array.lanes != 1) return false;
  switch (element) {
    case Element::kCode:
      return array.type_bits == 8 && (array.type_code == kUInt || array.type_code == kE4m3fn);
    case Element::kFloat32:
      return array.type_bits == 32 && array.type_code == kFloat;
    case Element::kInt32:
      return array.type_bits == 32 && array.type_code == kInt;
    case Element::kInt64:
      return array.type_bits == 64 && array.type_code == kInt;
    case Element::kBfloat16:
      return array.type_bits == 16 && (array.type_code == kBfloat || array.type_code == kUInt);
  }
  return false;
}

const char* expected_type(Element element) {
  switch (element) {
    case Element::kCode:
      return "float8_e4m3fn, or uint8 holding its codes";
    case Element::kFloat32:
      return "float32";
    case Element::kInt32:
      return "int32";
    case Element::kInt64:
      return "int64";
    case Element::kBfloat16:
      return "bfloat16, or uint16 holding its bits";
  }
  return "";
}

std::string tuple_text(std::span<const std::int64_t> values) {
  std::string text = "(";
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return text + (values.size() == 1 ? ",)" : ")");
}

std::string expected_shape(std::span<const char* const> letters,
                           std::span<const std::int64_t> extents) {
  std::string text = "(";
  for (std::size_t i = 0; i < letters.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text +=
        extents[i] < 0 ? letters[i] : std::string(letters[i]) + " = " + std::to_string(extents[i]);
  }
  return text + (letters.size() == 1 ? ",)" : ")");
}

void check_shape(const std::string& name, const Array& array, std::span<const char* const> letters,
                 std::span<std::int64_t> extents) {
  // Beyond this no extent is served, and below it products of two do not overflow.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  bool fits = array.shape.size() == letters.size();
  for (std::size_t i = 0; fits && i < letters.size(); ++i) {
    fits = array.shape[i] >= 0 && array.shape[i] <= kMost &&
           (extents[i] < 0 || array.shape[i] == extents[i]);
  }
  if (!fits) {
    throw Refusal(Refusal::Kind::kValue, name, "shape " + tuple_text(array.shape),
                  expected_shape(letters, extents));
  }
  std::copy(array.shape.begin(), array.shape.end(), extents.begin());
}

/// The stride of a dimension matters only where it has two or more steps.
std::int64_t check_strides(const std::string& name, const Array& array, std::size_t inner) {
  const std::size_t rank = array.shape.size();
  std::int64_t dense = 1;
  for (std::size_t i = rank; i-- > rank - inner;) {
    if (array.shape[i] > 1 && array.strides[i] != dense) {
      throw Refusal(Refusal::Kind::kValue, name, "element strides " + tuple_text(array.strides),
                    inner == rank ? "a contiguous array"
                                  : "the last " + std::to_string(inner) + " dimension" +
                                        (inner == 1 ? "" : "s") + " contiguous");
    }
    dense *= array.shape[i];
  }
  if (inner == rank || array.shape[0] <= 1) return dense;
  if (array.strides[0] < dense) {
    throw Refusal(Refusal::Kind::kValue, name, "element strides " + tuple_text(array.strides),
                  "rows at least " + std::to_string(dense) + " elements apart");
  }
  return array.strides[0];
}

}  // namespace

Refusal::Refusal(Kind kind, const std::string& name, const std::string& found,
                 const std::string& expected)
    : std::runtime_error(name + ": found " + found + ", expected " + expected), kind_(kind) {}

std::int64_t check_array(const std::string& name, const Array& array, Element element,
                         std::span<const char* const> letters, std::span<std::int64_t> extents,
                         std::size_t inner, Place place) {
  if (place != place_of(array.device_type)) {
    throw Refusal(Refusal::Kind::kValue, name, device_name(array.device_type),
                  place == Place::kHost ? "host memory (device cpu)" : "memory of a CUDA device");
  }
  if (!has_type(array, element)) {
    throw Refusal(Refusal::Kind::kType, name, "dtype " + type_name(array), expected_type(element));
  }
  check_shape(name, array, letters, extents);
  const bool empty = std::any_of(array.shape.begin(), array.shape.end(),
                                 [](std::int64_t extent) { return extent == 0; });
  if (empty) {
    std::int64_t dense = 1;
    for (std::size_t i = inner == array.shape.size() ? 0 : 1; i < array.shape.size(); ++i) {
      dense *= array.shape[i];
    }
    return dense;
  }
  const std::int64_t row_stride = check_strides(name, array, inner);
  if (array.data == nullptr) {
    throw Refusal(Refusal::Kind::kValue, name, "no memory (freed?)",
                  "the memory of " + tuple_text(array.shape));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(array.data);
  const auto alignment = static_cast<std::uintptr_t>(array.type_bits / 8);
  if (address % alignment != 0) {
    throw Refusal(Refusal::Kind::kValue, name,
                  "an address that is " + std::to_string(address % alignment) + " modulo " +
                      std::to_string(alignment),
                  "aligned elements");
  }
  return row_stride;
}

void Spans::add(const std::string& name, const Array& array, bool written) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    if (array.shape[i] == 0) return;
    last += (array.shape[i] - 1) * array.strides[i];
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(array.data);
  const std::uintptr_t end =
      begin + static_cast<std::uintptr_t>(last + 1) * static_cast<unsigned>(array.type_bits / 8);
  for (const Span& other : spans_) {
    if (written && begin < other.end && other.begin < end) {
      throw Refusal(Refusal::Kind::kValue, name, "memory that it shares with " + other.name,
                    "memory of its own");
    }
  }
  spans_.push_back({name, begin, end});
}

std::int32_t narrow(const std::string& name, std::int64_t value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value < -kMost || value > kMost) {
    throw Refusal(Refusal::Kind::kValue, name, std::to_string(value),
                  "at most " + std::to_string(kMost));
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace dosa::python
