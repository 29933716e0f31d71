// SPDX-License-Identifier: Apache-2.0
#include "io/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "io/gen_exact.hpp"
#include "unit/io/raw_file.hpp"

namespace dosa::io {
namespace {

/// The bytes of a file of `tensors`.
std::string encode(std::vector<Tensor> tensors) {
  std::string bytes = encode_header(tensors, {});
  for (const Tensor& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  return bytes;
}

std::string refusal_of_trace(const std::vector<Tensor>& tensors) {
  const std::string file = encode(tensors);
  try {
    const Trace trace(SafeTensors::parse(test::bytes_of(file)));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TraceData small_data() {
  ExactShape shape;
  shape.num_queries = 3;
  shape.num_keys = 5;
  shape.num_heads = 2;
  shape.head_dim = 16;
  return make_int(shape);
}

TEST(Trace, FillsAProblem) {
  const TraceData data = small_data();
  const std::string file = encode(data.tensors());
  const Trace trace(SafeTensors::parse(test::bytes_of(file)));
  const dosa_problem& problem = trace.problem();
  EXPECT_EQ(problem.struct_size, sizeof(dosa_problem));
  EXPECT_EQ(problem.num_queries, 3);
  EXPECT_EQ(problem.num_keys, 5);
  EXPECT_EQ(problem.num_heads, 2);
  EXPECT_EQ(problem.head_dim, 16);
  EXPECT_EQ(problem.topk, 0);
  EXPECT_EQ(problem.q_stride, 32);
  EXPECT_EQ(problem.k_stride, 16);
  EXPECT_EQ(problem.weights_stride, 2);
  EXPECT_TRUE(std::equal(data.q.begin(), data.q.end(), problem.q));
  EXPECT_TRUE(std::equal(data.k.begin(), data.k.end(), problem.k));
  EXPECT_TRUE(std::equal(data.k_scale.begin(), data.k_scale.end(), problem.k_scale));
  EXPECT_TRUE(std::equal(data.weights.begin(), data.weights.end(), problem.weights));
  EXPECT_TRUE(std::equal(data.k_start.begin(), data.k_start.end(), problem.k_start));
  EXPECT_TRUE(std::equal(data.k_end.begin(), data.k_end.end(), problem.k_end));
  EXPECT_TRUE(looks_like_trace(trace.file()));
}

TEST(Trace, CopiesWhatIsNotAligned) {
  const TraceData data = small_data();
  const std::string file = encode(data.tensors());
  for (std::size_t shift = 0; shift < alignof(float); ++shift) {
    // The header is a multiple of eight bytes long, so the shift is that of the data.
    std::vector<std::uint64_t> storage(file.size() / sizeof(std::uint64_t) + 2);
    auto* bytes = reinterpret_cast<std::byte*>(storage.data()) + shift;
    std::memcpy(bytes, file.data(), file.size());
    const Trace moved_from(SafeTensors::parse({bytes, file.size()}));
    const dosa_problem& problem = moved_from.problem();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(problem.k_scale) % alignof(float), 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(problem.k_end) % alignof(float), 0U);
    EXPECT_TRUE(std::equal(data.k_scale.begin(), data.k_scale.end(), problem.k_scale));
    EXPECT_TRUE(std::equal(data.weights.begin(), data.weights.end(), problem.weights));
    EXPECT_TRUE(std::equal(data.k_end.begin(), data.k_end.end(), problem.k_end));
  }
}

TEST(Trace, AcceptsEmptyExtents) {
  for (const auto& [queries, keys] : {std::pair{0, 5}, std::pair{3, 0}, std::pair{0, 0}}) {
    ExactShape shape;
    shape.num_queries = queries;
    shape.num_keys = keys;
    const TraceData data = blank_trace(shape);
    EXPECT_EQ(refusal_of_trace(data.tensors()), "");
  }
}

struct Change {
  const char* name;
  std::function<void(std::vector<Tensor>&)> apply;
  const char* line;
};

void PrintTo(const Change& change, std::ostream* stream) { *stream << change.name; }

std::function<void(std::vector<Tensor>&)> drop(const std::string& name) {
  return [name](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  };
}

std::function<void(std::vector<Tensor>&)> retype(const std::string& name, DType dtype,
                                                 std::vector<std::int64_t> shape) {
  return [=](std::vector<Tensor>& tensors) {
    static const std::vector<std::byte> kZeros(1 << 12);
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) {
        std::int64_t bytes = static_cast<std::int64_t>(dtype_bits(dtype)) / 8;
        for (const std::int64_t extent : shape) {
          bytes *= extent;
        }
        tensor.dtype = dtype;
        tensor.shape = shape;
        tensor.data = std::span(kZeros).first(static_cast<std::size_t>(bytes));
      }
    }
  };
}

class TraceRefuses : public testing::TestWithParam<Change> {};

TEST_P(TraceRefuses, NamingTheTensor) {
  const TraceData data = small_data();
  std::vector<Tensor> tensors = data.tensors();
  GetParam().apply(tensors);
  EXPECT_EQ(refusal_of_trace(tensors), GetParam().line);
}

INSTANTIATE_TEST_SUITE_P(
    Changes, TraceRefuses,
    testing::Values(
        Change{"no_q", drop("q"), "tensor 'q': found no such tensor, expected F8_E4M3 [Q, H, D]"},
        Change{"no_k", drop("k"), "tensor 'k': found no such tensor, expected F8_E4M3 [N, 16]"},
        Change{"no_scale", drop("k_scale"),
               "tensor 'k_scale': found no such tensor, expected F32 [5]"},
        Change{"no_weights", drop("weights"),
               "tensor 'weights': found no such tensor, expected F32 [3, 2]"},
        Change{"no_start", drop("k_start"),
               "tensor 'k_start': found no such tensor, expected I32 [3]"},
        Change{"no_end", drop("k_end"), "tensor 'k_end': found no such tensor, expected I32 [3]"},
        Change{"q_dtype", retype("q", DType::kF8E5M2, {3, 2, 16}),
               "tensor 'q': found F8_E5M2 [3, 2, 16], expected F8_E4M3 [Q, H, D]"},
        Change{"q_rank", retype("q", DType::kF8E4M3, {6, 16}),
               "tensor 'q': found F8_E4M3 [6, 16], expected F8_E4M3 [Q, H, D]"},
        Change{"k_dim", retype("k", DType::kF8E4M3, {5, 32}),
               "tensor 'k': found F8_E4M3 [5, 32], expected F8_E4M3 [N, 16]"},
        Change{"k_bytes", retype("k", DType::kU8, {5, 16}),
               "tensor 'k': found U8 [5, 16], expected F8_E4M3 [N, 16]"},
        Change{"scale_dtype", retype("k_scale", DType::kF16, {5}),
               "tensor 'k_scale': found F16 [5], expected F32 [5]"},
        Change{"scale_rank", retype("k_scale", DType::kF32, {5, 1}),
               "tensor 'k_scale': found F32 [5, 1], expected F32 [5]"},
        Change{"weights_heads", retype("weights", DType::kF32, {3, 4}),
               "tensor 'weights': found F32 [3, 4], expected F32 [3, 2]"},
        Change{"start_dtype", retype("k_start", DType::kI64, {3}),
               "tensor 'k_start': found I64 [3], expected I32 [3]"},
        Change{"end_length", retype("k_end", DType::kI32, {4}),
               "tensor 'k_end': found I32 [4], expected I32 [3]"}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(Trace, RefusesExtentsBeyondItsTypes) {
  TraceData data = small_data();
  data.num_queries = 0;
  data.num_heads = std::int64_t{1} << 31;
  data.q.clear();
  data.weights.clear();
  data.k_start.clear();
  data.k_end.clear();
  EXPECT_EQ(refusal_of_trace(data.tensors()), "H: found 2147483648, expected at most 2147483647");
}

TEST(Trace, ReadsTheRealTrace) {
  const Trace trace = Trace::open(std::string(DOSA_TEST_DATA) + "/code_small.safetensors");
  const dosa_problem& problem = trace.problem();
  EXPECT_EQ(problem.num_queries, 64);
  EXPECT_EQ(problem.num_keys, 16384);
  EXPECT_EQ(problem.num_heads, 32);
  EXPECT_EQ(problem.head_dim, 128);
  for (std::int32_t row = 0; row < 64; ++row) {
    EXPECT_EQ(problem.k_start[row], 0);
    EXPECT_EQ(problem.k_end[row], 16321 + row);
  }
}

TEST(Results, AreTensors) {
  const std::vector<std::int32_t> indices = {1, 2, -1, 0, 3, 4};
  const std::vector<float> scores = {6, 5, 4, 3, 2, 1};
  EXPECT_EQ(result_tensors(2, 3, indices.data(), nullptr).size(), 1U);
  const std::vector<Tensor> both = result_tensors(2, 3, indices.data(), scores.data());
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(describe(both[0].dtype, both[0].shape), "I32 [2, 3]");
  EXPECT_EQ(describe(both[1].dtype, both[1].shape), "F32 [2, 3]");
  EXPECT_EQ(both[0].data.size() + both[1].data.size(), 48U);
}

}  // namespace
}  // namespace dosa::io
