// SPDX-License-Identifier: Apache-2.0
// Arrays in the memory of a CUDA device, as the interface of dosa_cuda.h takes them.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"

namespace dosa::python {

/// One array: what Python says about it, or a DLPack capsule, which is kept.
class DeviceView {
 public:
  /// `object`: a capsule, or (address, shape, element strides or None, DLPack type code, bits,
  /// device).  Throws: Refusal.
  DeviceView(const char* name, nb::handle object) {
    if (!nb::isinstance<nb::tuple>(object)) {
      capsule_ = import_array<Input>(name, object);
      array_ = describe(capsule_);
      return;
    }
    const auto fields = nb::borrow<nb::tuple>(object);
    shape_ = integers(fields[1]);
    strides_ = fields[2].is_none() ? dense(shape_) : integers(fields[2]);
    array_.data = reinterpret_cast<const void*>(nb::cast<std::uintptr_t>(fields[0]));
    array_.shape = shape_;
    array_.strides = strides_;
    array_.type_code = nb::cast<int>(fields[3]);
    array_.type_bits = nb::cast<int>(fields[4]);
    array_.device_type = kCudaDevice;
    array_.device_id = nb::cast<int>(fields[5]);
  }
  DeviceView(const DeviceView&) = delete;  // the array points into its own lists
  DeviceView& operator=(const DeviceView&) = delete;

  [[nodiscard]] const Array& get() const { return array_; }
  [[nodiscard]] const Input& capsule() const { return capsule_; }

 private:
  static constexpr int kCudaDevice = 2;  // DLDeviceType

  static std::vector<std::int64_t> integers(nb::handle sequence) {
    std::vector<std::int64_t> values;
    for (nb::handle value : nb::borrow<nb::sequence>(sequence)) {
      values.push_back(nb::cast<std::int64_t>(value));
    }
    return values;
  }

  static std::vector<std::int64_t> dense(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return strides;
  }

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  Input capsule_;
  Array array_;
};

/// Arrays of one device that have been checked; keeps capsules alive. The first one says which
/// device. What is written may share no memory with anything else.
class DeviceArrays {
 public:
  static constexpr Place kPlace = Place::kDevice;

  /// As Inputs::read.
  template <typename Type, std::size_t Rank>
  const Type* read(const char* name, nb::handle object, Element element,
                   const char* const (&letters)[Rank], std::int64_t* const (&extents)[Rank],
                   std::int64_t& row_stride) {
    std::array<std::int64_t, Rank> found{};
    for (std::size_t i = 0; i < Rank; ++i) found[i] = *extents[i];
    const void* data = take(name, object, element, letters, found, row_stride, false);
    for (std::size_t i = 0; i < Rank; ++i) *extents[i] = found[i];
    return static_cast<const Type*>(data);
  }

  /// An array that the call writes; none is a null pointer.
  template <typename Type, std::size_t Rank>
  Type* write(const char* name, nb::handle object, Element element,
              const char* const (&letters)[Rank], std::array<std::int64_t, Rank> extents,
              std::int64_t& row_stride) {
    if (object.is_none()) return nullptr;
    const void* data = take(name, object, element, letters, extents, row_stride, true);
    return static_cast<Type*>(const_cast<void*>(data));
  }

  /// As Inputs::inspect.
  template <typename Check>
  const void* inspect(const char* name, nb::handle object, bool written, Check check) {
    const DeviceView view(name, object);
    check(view.get());
    keep(name, view, written);
    return view.get().data;
  }

  [[nodiscard]] static std::size_t rank(const char* name, nb::handle object) {
    return DeviceView(name, object).get().shape.size();
  }
  [[nodiscard]] int device() const { return device_; }

 private:
  template <std::size_t Rank>
  const void* take(const char* name, nb::handle object, Element element,
                   const char* const (&letters)[Rank], std::array<std::int64_t, Rank>& extents,
                   std::int64_t& row_stride, bool written) {
    constexpr std::size_t kInner = Rank == 1 ? 1 : Rank - 1;
    const DeviceView view(name, object);
    row_stride = check_array(name, view.get(), element, letters, extents, kInner, kPlace);
    keep(name, view, written);
    return view.get().data;
  }

  void keep(const char* name, const DeviceView& view, bool written) {
    const Array& array = view.get();
    if (device_ < 0) device_ = array.device_id;
    if (array.device_id != device_) {
      throw Refusal(Refusal::Kind::kValue, name, "device cuda:" + std::to_string(array.device_id),
                    "cuda:" + std::to_string(device_) + " as of q");
    }
    spans_.add(name, array, written);
    if (view.capsule().is_valid()) capsules_.push_back(view.capsule());
  }

  std::vector<Input> capsules_;
  Spans spans_;
  int device_ = -1;
};

}  // namespace dosa::python
