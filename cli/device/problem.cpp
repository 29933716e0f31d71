// SPDX-License-Identifier: Apache-2.0
#include "device/problem.hpp"

#include <fmt/format.h>

#include "engine/cuda_model.hpp"
#include "failure.hpp"

namespace dosa::cli {
namespace {

/// Rows of `width` elements that lie `stride` apart, packed.
template <class T>
DeviceArray<T> packed(const T* host, std::int64_t rows, std::int64_t width, std::int64_t stride) {
  DeviceArray<T> array(static_cast<std::size_t>(rows * width));
  if (rows == 0 || width == 0) return array;
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(T); };
  DOSA_CUDA(cudaMemcpy2D(array.get(), bytes(width), host, bytes(stride), bytes(width),
                         static_cast<std::size_t>(rows), cudaMemcpyHostToDevice));
  return array;
}

DeviceArray<std::int32_t> window(const std::int32_t* host, std::int64_t rows) {
  if (host == nullptr) return {};
  return {host, static_cast<std::size_t>(rows)};
}

}  // namespace

const char* model_on_device(const dosa_options& options) {
  return engine::model_name(options.score_model != DOSA_MODEL_DEFAULT
                                ? options.score_model
                                : engine::default_model(engine::device_capability()));
}

std::string require_device() {
  constexpr int kMajor = 8;
  int count = 0;
  const cudaError_t asked = cudaGetDeviceCount(&count);
  if (asked != cudaSuccess || count == 0) {
    throw Failure("--backend", asked == cudaSuccess ? "no device" : cudaGetErrorString(asked),
                  "an sm_80 device or later");
  }
  cudaDeviceProp device{};
  DOSA_CUDA(cudaGetDeviceProperties(&device, 0));
  const std::string name = fmt::format("{}, sm_{}{}, {} multiprocessors", device.name, device.major,
                                       device.minor, device.multiProcessorCount);
  if (device.major < kMajor) throw Failure("--backend", name, "an sm_80 device or later");
  return name;
}

DeviceProblem::DeviceProblem(const dosa_problem& host)
    : host_(host),
      q_(packed(host.q, host.num_queries, std::int64_t{host.num_heads} * host.head_dim,
                host.q_stride)),
      k_(packed(host.k, host.num_keys, host.head_dim, host.k_stride)),
      k_scale_(packed(host.k_scale, host.num_keys, 1, 1)),
      weights_(packed(host.weights, host.num_queries, host.num_heads, host.weights_stride)),
      start_(window(host.k_start, host.num_queries)),
      end_(window(host.k_end, host.num_queries)),
      problem_(host) {
  problem_.q = q_.get();
  problem_.q_stride = std::int64_t{host.num_heads} * host.head_dim;
  problem_.k = k_.get();
  problem_.k_stride = host.head_dim;
  problem_.k_scale = k_scale_.get();
  problem_.weights = weights_.get();
  problem_.weights_stride = host.num_heads;
  problem_.k_start = start_.get();
  problem_.k_end = end_.get();
}

dosa_problem DeviceProblem::cut(const dosa_problem& part) {
  const std::int64_t row = (part.q - host_.q) / host_.q_stride;
  const std::int64_t key = (part.k - host_.k) / host_.k_stride;
  start_ = window(part.k_start, part.num_queries);
  end_ = window(part.k_end, part.num_queries);
  dosa_problem result = problem_;
  result.num_queries = part.num_queries;
  result.num_keys = part.num_keys;
  result.topk = part.topk;
  result.q += row * problem_.q_stride;
  result.weights += row * problem_.weights_stride;
  result.k += key * problem_.k_stride;
  result.k_scale += key;
  result.k_start = start_.get();
  result.k_end = end_.get();
  return result;
}

}  // namespace dosa::cli
