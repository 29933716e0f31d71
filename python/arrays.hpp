// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace dosa::python {

/// An argument that is refused before any work; becomes dosa.ArgumentError or ArgumentTypeError.
class Refusal : public std::runtime_error {
 public:
  enum class Kind { kType, kValue };
  /// The line "<name>: found <found>, expected <expected>".
  Refusal(Kind kind, const std::string& name, const std::string& found,
          const std::string& expected);
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// An array as DLPack describes it; strides in elements.
struct Array {
  const void* data = nullptr;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;
  int type_code = 0;  // DLDataTypeCode
  int type_bits = 0;
  int lanes = 1;
  int device_type = 1;  // DLDeviceType; 1 is the host
  int device_id = 0;
};

/// Where an array has to lie.
enum class Place { kHost, kDevice };

enum class Element { kCode, kFloat32, kInt32, kInt64, kBfloat16 };

/// Refuses anything but an aligned array of `element` in its place, of the rank of `letters` ("Q",
/// "H", "D"); where extents[i] >= 0 the extent has to be that, else it is set to what was found.
/// The last `inner` dimensions have to be contiguous, rows before them must not overlap.
/// Returns: elements between rows of the first dimension (of the whole array where inner is all).
/// Throws: Refusal naming the argument, found and expected.
std::int64_t check_array(const std::string& name, const Array& array, Element element,
                         std::span<const char* const> letters, std::span<std::int64_t> extents,
                         std::size_t inner, Place place = Place::kHost);

/// The memory of the arrays of a call: what is written may share none with anything else.
class Spans {
 public:
  /// Throws: Refusal where `written` and an array before shares memory with it.
  void add(const std::string& name, const Array& array, bool written);

 private:
  struct Span {
    std::string name;
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  std::vector<Span> spans_;
};

/// `value` as a field of dosa_problem or dosa_options.  Throws: Refusal.
[[nodiscard]] std::int32_t narrow(const std::string& name, std::int64_t value);

}  // namespace dosa::python
