// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "parts.hpp"

namespace nb = nanobind;

namespace dosa::python {
namespace {

/// Memory that is taken and given back in the order of a stream.
struct Memory {
  void* data;
  cudaStream_t stream;
  int device;
};

void free_memory(void* pointer) noexcept {
  const std::unique_ptr<Memory> memory(static_cast<Memory*>(pointer));
  int before = 0;
  // Nobody can be told of a failure here; a context that is gone has freed its memory.
  if (cudaGetDevice(&before) != cudaSuccess) return;
  cudaSetDevice(memory->device);
  cudaFreeAsync(memory->data, memory->stream);
  cudaSetDevice(before);
}

nb::dlpack::dtype type_of(const std::string& name) {
  using Code = nb::dlpack::dtype_code;
  if (name == "int32") return {static_cast<std::uint8_t>(Code::Int), 32, 1};
  if (name == "float32") return {static_cast<std::uint8_t>(Code::Float), 32, 1};
  return {static_cast<std::uint8_t>(Code::UInt), 8, 1};
}

/// An uninitialised array of the device, (address, array that exports it through DLPack).
nb::tuple allocate(const std::vector<std::size_t>& shape, const std::string& type, int device,
                   std::uintptr_t stream) {
  const DeviceGuard guard(device);
  const nb::dlpack::dtype dtype = type_of(type);
  std::size_t bytes = dtype.bits / 8U;
  for (const std::size_t extent : shape) bytes *= extent;
  auto memory = std::make_unique<Memory>(Memory{nullptr, stream_of(stream), device});
  const cudaError_t status = cudaMallocAsync(&memory->data, bytes, memory->stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is reported here and is not the next call's
    throw std::bad_alloc();
  }
  check_cuda(status, "cudaMallocAsync");
  void* data = memory->data;
  const nb::capsule owner(memory.get(), free_memory);
  memory.release();
  const nb::ndarray<nb::array_api> array(data, shape.size(), shape.data(), owner, nullptr, dtype,
                                         nb::device::cuda::value, device);
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(data), array);
}

/// Lets what is enqueued on `later` from now on wait for what is on `earlier`.
void order_streams(std::uintptr_t earlier, std::uintptr_t later, int device) {
  if (stream_of(earlier) == stream_of(later)) return;
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  cudaError_t status = cudaEventRecord(event, stream_of(earlier));
  if (status == cudaSuccess) status = cudaStreamWaitEvent(stream_of(later), event);
  cudaEventDestroy(event);
  check_cuda(status, "cudaStreamWaitEvent");
}

/// The bytes at an address of a device, once what is on `stream` now has been done.
nb::bytes read(std::uintptr_t address, std::size_t count, std::uintptr_t stream, int device) {
  std::vector<char> bytes(count);
  {
    const nb::gil_scoped_release release;
    const DeviceGuard guard(device);
    check_cuda(cudaMemcpyAsync(bytes.data(), reinterpret_cast<const void*>(address), count,
                               cudaMemcpyDeviceToHost, stream_of(stream)),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
  }
  return nb::bytes(bytes.data(), bytes.size());
}

/// The device of an address, or -1 where it is none of a device.
int device_of_pointer(std::uintptr_t address) {
  cudaPointerAttributes found{};
  check_cuda(cudaPointerGetAttributes(&found, reinterpret_cast<const void*>(address)),
             "cudaPointerGetAttributes");
  const bool device = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
  return device ? found.device : -1;
}

}  // namespace

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const bool absent = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver;
  throw Failure{absent ? DOSA_UNSUPPORTED : DOSA_INTERNAL,
                std::string(call) + ": " + cudaGetErrorString(status)};
}

DeviceGuard::DeviceGuard(int device) {
  check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ == device) return;
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(before_);
}

void bind_device_memory(nb::module_& module) {
  module.def("device_allocate", &allocate, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"),
             nb::arg("stream"));
  module.def("device_order_streams", &order_streams, nb::arg("earlier"), nb::arg("later"),
             nb::arg("device"));
  module.def("device_read", &read, nb::arg("address"), nb::arg("count"), nb::arg("stream"),
             nb::arg("device"));
  module.def("device_of_pointer", &device_of_pointer, nb::arg("address"));
}

}  // namespace dosa::python
