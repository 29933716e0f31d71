// SPDX-License-Identifier: Apache-2.0
#include "io/trace.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "io/error.hpp"

namespace dosa::io {
namespace {

constexpr std::array<std::string_view, 6> kTraceNames = {"q",       "k",       "k_scale",
                                                         "weights", "k_start", "k_end"};

/// One expected tensor: the letters of its shape, and their values, -1 while unknown.
struct Extent {
  std::string_view letter;
  std::int64_t value = -1;
};

std::string spell(DType dtype, const std::vector<Extent>& shape) {
  std::string text(dtype_name(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text += shape[i].value < 0 ? std::string(shape[i].letter) : std::to_string(shape[i].value);
  }
  return text + "]";
}

const Tensor& require(const SafeTensors& file, std::string_view name, DType dtype,
                      const std::vector<Extent>& shape) {
  const std::string label = "tensor " + printable(name);
  const Tensor* tensor = file.find(name);
  if (tensor == nullptr) {
    throw Error(label, "no such tensor", spell(dtype, shape));
  }
  bool fits = tensor->dtype == dtype && tensor->shape.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i].value < 0 || tensor->shape[i] == shape[i].value;
  }
  if (!fits) {
    throw Error(label, describe(tensor->dtype, tensor->shape), spell(dtype, shape));
  }
  return *tensor;
}

/// `value` where it fits the field of dosa_problem that it is for.
std::int32_t narrow(std::int64_t value, std::string_view what) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value > kMost) {
    throw Error(what, std::to_string(value), "at most " + std::to_string(kMost));
  }
  return static_cast<std::int32_t>(value);
}

/// The elements of `tensor`: in place where they are aligned, else a copy kept in `copies`.
template <typename Element>
const Element* elements(const Tensor& tensor, std::vector<std::vector<std::uint32_t>>& copies) {
  static_assert(sizeof(Element) == sizeof(std::uint32_t));
  const std::byte* data = tensor.data.data();
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(Element) != 0) {
    std::vector<std::uint32_t>& copy =
        copies.emplace_back(tensor.data.size() / sizeof(Element) + 1);
    std::memcpy(copy.data(), data, tensor.data.size());
    data = reinterpret_cast<const std::byte*>(copy.data());
  }
  return reinterpret_cast<const Element*>(data);
}

const std::uint8_t* codes(const Tensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.data.data());
}

}  // namespace

Trace::Trace(SafeTensors file) : file_(std::move(file)) {
  const Tensor& q = require(file_, "q", DType::kF8E4M3, {{"Q"}, {"H"}, {"D"}});
  const std::int64_t num_queries = q.shape[0];
  const std::int64_t num_heads = q.shape[1];
  const std::int64_t head_dim = q.shape[2];
  const Tensor& k = require(file_, "k", DType::kF8E4M3, {{"N"}, {"D", head_dim}});
  const std::int64_t num_keys = k.shape[0];
  const Tensor& scale = require(file_, "k_scale", DType::kF32, {{"N", num_keys}});
  const Tensor& weights =
      require(file_, "weights", DType::kF32, {{"Q", num_queries}, {"H", num_heads}});
  const Tensor& start = require(file_, "k_start", DType::kI32, {{"Q", num_queries}});
  const Tensor& end = require(file_, "k_end", DType::kI32, {{"Q", num_queries}});

  problem_.struct_size = sizeof(dosa_problem);
  problem_.num_queries = num_queries;
  problem_.num_keys = narrow(num_keys, "N");
  problem_.num_heads = narrow(num_heads, "H");
  problem_.head_dim = narrow(head_dim, "D");
  problem_.page_size = 1;
  problem_.q = codes(q);
  problem_.q_stride = num_heads * head_dim;
  problem_.k = codes(k);
  problem_.k_stride = head_dim;
  problem_.k_scale = elements<float>(scale, aligned_);
  problem_.weights = elements<float>(weights, aligned_);
  problem_.weights_stride = num_heads;
  problem_.k_start = elements<std::int32_t>(start, aligned_);
  problem_.k_end = elements<std::int32_t>(end, aligned_);
}

Trace Trace::open(const std::string& path) {
  SafeTensors file = SafeTensors::open(path);
  try {
    return Trace(std::move(file));
  } catch (const Error& error) {
    throw Error(printable(path) + ": " + error.what());
  }
}

bool looks_like_trace(const SafeTensors& file) {
  for (const std::string_view name : kTraceNames) {
    if (file.find(name) == nullptr) {
      return false;
    }
  }
  return true;
}

std::vector<Tensor> TraceData::tensors() const {
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  return {{"q", DType::kF8E4M3, {num_queries, num_heads, head_dim}, bytes(q)},
          {"k", DType::kF8E4M3, {num_keys, head_dim}, bytes(k)},
          {"k_scale", DType::kF32, {num_keys}, bytes(k_scale)},
          {"weights", DType::kF32, {num_queries, num_heads}, bytes(weights)},
          {"k_start", DType::kI32, {num_queries}, bytes(k_start)},
          {"k_end", DType::kI32, {num_queries}, bytes(k_end)}};
}

dosa_problem TraceData::problem() const {
  dosa_problem problem{};
  problem.struct_size = sizeof problem;
  problem.num_queries = num_queries;
  problem.num_keys = num_keys;
  problem.num_heads = static_cast<std::int32_t>(num_heads);
  problem.head_dim = static_cast<std::int32_t>(head_dim);
  problem.page_size = 1;
  problem.q = q.data();
  problem.q_stride = num_heads * head_dim;
  problem.k = k.data();
  problem.k_stride = head_dim;
  problem.k_scale = k_scale.data();
  problem.weights = weights.data();
  problem.weights_stride = num_heads;
  problem.k_start = k_start.data();
  problem.k_end = k_end.data();
  return problem;
}

ProblemPart cut(const dosa_problem& whole, std::int64_t rows, std::int64_t keys) {
  ProblemPart part;
  part.problem = whole;
  dosa_problem& problem = part.problem;
  const std::int64_t skip_rows = std::max<std::int64_t>(0, problem.num_queries - rows);
  const std::int64_t skip_keys = std::max<std::int64_t>(0, problem.num_keys - keys);
  problem.num_queries -= skip_rows;
  problem.num_keys -= skip_keys;
  problem.q += skip_rows * problem.q_stride;
  problem.weights += skip_rows * problem.weights_stride;
  problem.k += skip_keys * problem.k_stride;
  problem.k_scale += skip_keys;
  for (std::int64_t row = skip_rows; row < skip_rows + problem.num_queries; ++row) {
    const std::int64_t start = whole.k_start != nullptr ? whole.k_start[row] : 0;
    const std::int64_t end = whole.k_end != nullptr ? whole.k_end[row] : whole.num_keys;
    part.start.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, start - skip_keys)));
    part.end.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, end - skip_keys)));
  }
  problem.k_start = part.start.data();
  problem.k_end = part.end.data();
  return part;
}

std::vector<Tensor> result_tensors(std::int64_t num_queries, std::int64_t topk,
                                   const std::int32_t* indices, const float* scores) {
  const auto count = static_cast<std::size_t>(num_queries * topk);
  std::vector<Tensor> tensors;
  tensors.push_back({"indices",
                     DType::kI32,
                     {num_queries, topk},
                     std::as_bytes(std::span<const std::int32_t>(indices, count))});
  if (scores != nullptr) {
    tensors.push_back({"scores",
                       DType::kF32,
                       {num_queries, topk},
                       std::as_bytes(std::span<const float>(scores, count))});
  }
  return tensors;
}

}  // namespace dosa::io
