// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "unit/io/raw_file.hpp"

namespace dosa::io {
namespace {

using test::raw_file;
using test::refusal;

const std::string kFour = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

TEST(Read, AcceptsATensor) {
  const std::string file = raw_file(kFour, 4);
  const SafeTensors parsed = SafeTensors::parse(test::bytes_of(file));
  ASSERT_EQ(parsed.tensors().size(), 1U);
  const Tensor* tensor = parsed.find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kF32);
  EXPECT_EQ(tensor->shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(tensor->data.size(), 4U);
  EXPECT_EQ(static_cast<const void*>(tensor->data.data()), file.data() + 8 + kFour.size());
  EXPECT_EQ(parsed.find("b"), nullptr);
}

TEST(Read, AcceptsPaddingMetadataScalarsAndZeroSizes) {
  const std::string header = R"({"__metadata__":{"x":"y","":"\u00e9"},)"
                             R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("z":{"data_offsets":[8,8],"shape":[0,7],"dtype":"F8_E4M3"},)"
                             R"("y":{"dtype":"U8","shape":[3,0],"data_offsets":[0,0]}}   )";
  const std::string file = raw_file(header, 8);
  const SafeTensors parsed = SafeTensors::parse(test::bytes_of(file));
  EXPECT_EQ(parsed.metadata(), (Metadata{{"x", "y"}, {"", "\u00e9"}}));
  EXPECT_EQ(parsed.tensors().size(), 3U);
  EXPECT_EQ(parsed.find("z")->data.size(), 0U);
  EXPECT_EQ(refusal(raw_file("{}", 0)), "");
}

TEST(Read, RefusesEveryTruncation) {
  const std::string file = raw_file(kFour, 4);
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(refusal(file.substr(0, length)), "") << length;
  }
  EXPECT_NE(refusal(file + "x"), "");
}

TEST(Read, RefusesLyingLengths) {
  for (const std::uint64_t length :
       {std::uint64_t{1}, kFour.size() - 1, kFour.size() + 1, kFour.size() + 4, kFour.size() + 5,
        std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_NE(refusal(raw_file(length, kFour, 4)), "") << length;
  }
  EXPECT_EQ(refusal(raw_file(~std::uint64_t{0}, kFour, 4)),
            "header length: found 18446744073709551615, expected at most 58 (the bytes that follow "
            "it)");
}

struct Refused {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  std::string line;  // the whole message, or its beginning
};

void PrintTo(const Refused& refused, std::ostream* stream) { *stream << refused.name; }

std::string one(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

class ReadRefuses : public testing::TestWithParam<Refused> {};

TEST_P(ReadRefuses, WithOneLine) {
  const std::string line = refusal(raw_file(GetParam().header, GetParam().data_bytes));
  EXPECT_EQ(line.substr(0, GetParam().line.size()), GetParam().line);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

const std::string kDup = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

INSTANTIATE_TEST_SUITE_P(
    Headers, ReadRefuses,
    testing::Values(
        Refused{"array", "[]", 0, "header: found '[', expected '{'"},
        Refused{"byte_order_mark", "\xEF\xBB\xBF{}", 0, "header: found '"},
        Refused{"leading_blank", " {}", 0, "header: found ' ', expected '{'"},
        Refused{"two_objects", "{}{}", 0, "header: found invalid JSON at byte 3"},
        Refused{"nul_padding", std::string("{}\0{", 4), 0, "header: found a NUL at byte 2"},
        Refused{"broken_utf8", "{\"\xff\":{}}", 0, "header: found invalid JSON"},
        Refused{"deep", "{\"a\":" + std::string(100000, '['), 0, "tensor 'a': found an array"},
        Refused{"number", R"({"a":3})", 0, "tensor 'a': found 3, expected an object with dtype"},
        Refused{"null", R"({"a":null})", 0, "tensor 'a': found null, expected an object"},
        Refused{"twice", "{\"a\":{" + kDup + "},\"a\":{" + kDup + "}}", 4,
                "header: found the name 'a' twice, expected distinct names"},
        Refused{"twice_escaped", "{\"a\":{" + kDup + "},\"\\u0061\":{" + kDup + "}}", 4,
                "header: found the name 'a' twice"},
        Refused{"no_dtype", one(R"("shape":[],"data_offsets":[0,4])"), 4,
                "tensor 'a': found no dtype, expected dtype, shape and data_offsets once each"},
        Refused{"no_shape", one(R"("dtype":"F32","data_offsets":[0,4])"), 4,
                "tensor 'a': found no shape"},
        Refused{"no_offsets", one(R"("dtype":"F32","shape":[1])"), 4,
                "tensor 'a': found no data_offsets"},
        Refused{"field_twice", one(kDup + R"(,"dtype":"I32")"), 4,
                "tensor 'a': found the field 'dtype' twice"},
        Refused{"other_field", one(kDup + R"(,"stride":[1])"), 4,
                "tensor 'a': found the field 'stride'"},
        Refused{"unknown_dtype", one(R"("dtype":"F12","shape":[1],"data_offsets":[0,4])"), 4,
                "tensor 'a': found 'F12', expected a dtype name such as F8_E4M3 or F32"},
        Refused{"dtype_number", one(R"("dtype":1,"shape":[1],"data_offsets":[0,4])"), 4,
                "tensor 'a': found 1, expected a dtype name"},
        Refused{"metadata_number", R"({"__metadata__":{"a":1}})", 0,
                "tensor '__metadata__': found 1, expected a string"},
        Refused{"metadata_nested", R"({"__metadata__":{"a":{}}})", 0,
                "tensor '__metadata__': found an object, expected a string"},
        Refused{"metadata_twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0,
                "tensor '__metadata__': found the name 'a' twice"},
        Refused{"control_characters", "{\"a\\n\\u001b[31m\":{}}", 0,
                R"(tensor 'a\x0a\x1b[31m': found no dtype)"}),
    [](const auto& parameter) { return parameter.param.name; });

Refused shaped(const char* name, const std::string& shape, const std::string& offsets,
               std::size_t data_bytes, const std::string& line) {
  return {name, one(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets),
          data_bytes, "tensor 'a': found " + line};
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, ReadRefuses,
    testing::Values(
        shaped("negative", "[-1]", "[0,4]", 4, "-1, expected a shape of unsigned integers"),
        shaped("minus_zero", "[-0]", "[0,0]", 0, "0, expected a shape of unsigned integers"),
        shaped("fraction", "[1.0]", "[0,4]", 4, "1.0, expected a shape"),
        shaped("exponent", "[1e0]", "[0,4]", 4, "1e0, expected a shape"),
        shaped("beyond_64_bits", "[18446744073709551616]", "[0,4]", 4,
               "18446744073709551616, expected a shape"),
        shaped("string", R"(["1"])", "[0,4]", 4, "the string '1', expected a shape"),
        shaped("nested", "[[1]]", "[0,4]", 4, "an array, expected a shape"),
        shaped("scalar_shape", "1", "[0,4]", 4, "1, expected a shape"),
        shaped("negative_offset", "[1]", "[-4,0]", 4, "-4, expected data_offsets of two"),
        shaped("float_offset", "[1]", "[0,4.0]", 4, "4.0, expected data_offsets of two"),
        shaped("one_offset", "[1]", "[4]", 4, "an array of 1, expected data_offsets of two"),
        shaped("three_offsets", "[1]", "[0,4,4]", 4, "a third number, expected data_offsets"),
        shaped("inverted", "[1]", "[4,0]", 4, "data_offsets [4, 0), expected a range in the 4"),
        shaped("past_the_end", "[2]", "[0,8]", 4, "data_offsets [0, 8), expected a range in the 4"),
        shaped("huge_offsets", "[1]", "[18446744073709551612,18446744073709551615]", 4,
               "data_offsets [18446744073709551612, 18446744073709551615), expected a range"),
        shaped("hole_before", "[1]", "[4,8]", 8,
               "data_offsets [4, 8), expected a range that starts at 0"),
        shaped("too_few_bytes", "[2]", "[0,4]", 4, "4 bytes, expected 8 bytes for F32 [2]"),
        shaped("extent_overflow", "[9223372036854775808]", "[0,4]", 4, "4 bytes, expected more"),
        shaped("product_overflow", "[4294967296,4294967296]", "[0,0]", 0, "0 bytes, expected more"),
        shaped("bits_overflow", "[1152921504606846976]", "[0,0]", 0, "0 bytes, expected more"),
        shaped("overflow_times_zero", "[4294967296,4294967296,0]", "[0,0]", 0,
               "0 bytes, expected more")),
    [](const auto& parameter) { return parameter.param.name; });

std::string two(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Layout, ReadRefuses,
    testing::Values(Refused{"same_range", two("[0,4]", "[0,4]"), 4,
                            "tensor 'b': found data_offsets [0, 4), expected a range that starts"},
                    Refused{"overlap", two("[0,4]", "[3,7]"), 7, "tensor 'b': found data_offsets"},
                    Refused{"hole", two("[0,4]", "[5,9]"), 9, "tensor 'b': found data_offsets"},
                    Refused{"tail", two("[0,4]", "[4,8]"), 9, "data: found 9 bytes, expected 8"},
                    Refused{"half_byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})",
                            1, "tensor 'a': found 1 bytes, expected more than 2^64 or a broken"}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(Read, NamesTheFile) {
  const test::Folder folder;
  test::write_text(folder.file("short"), "123");
  test::write_text(folder.file("empty"), "");
  const auto line = [](const std::string& path) -> std::string {
    try {
      const SafeTensors file = SafeTensors::open(path);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(line(folder.file("short")),
            "'" + folder.file("short") + "': header: found 3 bytes, expected at least 8");
  EXPECT_EQ(line(folder.file("empty")),
            "'" + folder.file("empty") + "': header: found 0 bytes, expected at least 8");
  EXPECT_EQ(line(folder.file("missing")), "'" + folder.file("missing") +
                                              "': found No such file or directory, expected a "
                                              "readable file");
  EXPECT_NE(line(folder.file(".")).find("found a directory, expected a regular file"),
            std::string::npos);
  EXPECT_NE(line("/dev/null").find("found a special file"), std::string::npos);
}

TEST(Header, RoundTripsAndPads) {
  const std::vector<float> floats = {1, 2, 3};
  const std::vector<std::uint8_t> codes = {1, 2, 3, 4, 5};
  std::vector<Tensor> tensors = {
      {"codes", DType::kF8E4M3, {5}, std::as_bytes(std::span(codes))},
      {"b", DType::kF32, {3, 1}, std::as_bytes(std::span(floats))},
      {"a", DType::kF32, {0}, {}},
  };
  const std::string header = encode_header(tensors, {{"k", "v\""}});
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(tensors[0].name + tensors[1].name + tensors[2].name, "abcodes");
  EXPECT_EQ(header.substr(8),
            R"({"__metadata__":{"k":"v\""},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
            R"("b":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},)"
            R"("codes":{"dtype":"F8_E4M3","shape":[5],"data_offsets":[12,17]}})");
  EXPECT_EQ(refusal(header + std::string(17, 'x')), "");
  std::vector<Tensor> none;
  EXPECT_EQ(encode_header(none, {}).substr(8), "{}      ");
}

TEST(Header, RefusesWhatCouldNotBeRead) {
  const std::vector<float> floats = {1, 2, 3};
  const auto data = std::as_bytes(std::span(floats));
  std::vector<Tensor> wrong_bytes = {{"a", DType::kF32, {4}, data}};
  EXPECT_THROW((void)encode_header(wrong_bytes, {}), Error);
  std::vector<Tensor> negative = {{"a", DType::kF32, {-3}, data}};
  EXPECT_THROW((void)encode_header(negative, {}), Error);
  std::vector<Tensor> twice = {{"a", DType::kF32, {3}, data}, {"a", DType::kF32, {3}, data}};
  EXPECT_THROW((void)encode_header(twice, {}), Error);
  std::vector<Tensor> reserved = {{"__metadata__", DType::kF32, {3}, data}};
  EXPECT_THROW((void)encode_header(reserved, {}), Error);
}

}  // namespace
}  // namespace dosa::io
