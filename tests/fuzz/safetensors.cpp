// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the safetensors reader and to the trace reader on top of it. What is
// accepted must hold the reader's guarantees: spans in the file that add up to its data, and an
// encoded copy that reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/error.hpp"
#include "io/safetensors.hpp"
#include "io/trace.hpp"

namespace {

using dosa::io::Error;
using dosa::io::SafeTensors;
using dosa::io::Tensor;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// An error has to be one line that no terminal takes orders from.
void check_line(const Error& error) {
  for (const char* c = error.what(); *c != '\0'; ++c) {
    require(static_cast<unsigned char>(*c) >= ' ');
  }
}

void check_file(const SafeTensors& file, std::span<const std::byte> bytes) {
  const std::byte* next = nullptr;
  for (const Tensor& tensor : file.tensors()) {
    const std::byte* begin = tensor.data.data();
    require(begin >= bytes.data() + 8 && begin + tensor.data.size() <= bytes.data() + bytes.size());
    require(next == nullptr || begin == next);
    next = begin + tensor.data.size();
  }
  require(next == nullptr || next == bytes.data() + bytes.size());

  std::vector<Tensor> tensors = file.tensors();
  std::string copy = dosa::io::encode_header(tensors, file.metadata());
  for (const Tensor& tensor : tensors) {
    copy.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  const SafeTensors again = SafeTensors::parse(std::as_bytes(std::span(copy)));
  require(again.tensors().size() == tensors.size() && again.metadata() == file.metadata());
  for (const Tensor& tensor : tensors) {
    const Tensor* twin = again.find(tensor.name);
    require(twin != nullptr && twin->dtype == tensor.dtype && twin->shape == tensor.shape);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    SafeTensors file = SafeTensors::parse(bytes);
    check_file(file, bytes);
    const dosa::io::Trace trace(std::move(file));
    const dosa_problem& problem = trace.problem();
    float sum = 0;
    for (std::int64_t i = 0; i < problem.num_keys; ++i) {
      sum += problem.k_scale[i];  // the whole tensor has to be readable
    }
    volatile float sink = sum;
    (void)sink;
  } catch (const Error& error) {
    check_line(error);
  }
  return 0;
}
