// SPDX-License-Identifier: Apache-2.0
//
// A reader for the one file of trained inputs, written apart from src/io so that a fault there
// cannot hide here. It trusts the file: it belongs to the tests.
#include <cstring>
#include <fstream>
#include <iterator>

#include "generate.hpp"

namespace dosa::oracle {

namespace {

Problem& storage() {
  static Problem problem;
  return problem;
}

struct Tensor {
  std::vector<std::int64_t> shape;
  std::string bytes;
};

std::vector<std::int64_t> numbers_after(const std::string& text, std::size_t at) {
  std::vector<std::int64_t> numbers;
  std::size_t i = text.find('[', at) + 1;
  while (text[i] != ']') {
    std::size_t used = 0;
    numbers.push_back(std::stoll(text.substr(i), &used));
    i += used;
    while (text[i] == ',' || text[i] == ' ') ++i;
  }
  return numbers;
}

Tensor read_tensor(const std::string& file, const std::string& name) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const std::string header = file.substr(8, header_bytes);
  const std::size_t at = header.find("\"" + name + "\"");
  if (at == std::string::npos) return {};
  const auto range = numbers_after(header, header.find("data_offsets", at));
  return {numbers_after(header, header.find("shape", at)),
          file.substr(8 + header_bytes + static_cast<std::size_t>(range[0]),
                      static_cast<std::size_t>(range[1] - range[0]))};
}

template <typename T>
std::vector<T> values(const Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), result.size() * sizeof(T));
  return result;
}

}  // namespace

bool load_trained_input(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return false;
  const std::string file((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  const Tensor q = read_tensor(file, "q");
  const Tensor k = read_tensor(file, "k");
  if (q.shape.size() != 3 || k.shape.size() != 2) return false;
  Problem p;
  p.num_queries = q.shape[0];
  p.num_heads = static_cast<int>(q.shape[1]);
  p.head_dim = static_cast<int>(q.shape[2]);
  p.num_keys = k.shape[0];
  p.topk = 1;
  p.q = values<std::uint8_t>(q);
  p.k = values<std::uint8_t>(k);
  p.k_scale = values<float>(read_tensor(file, "k_scale"));
  p.weights = values<float>(read_tensor(file, "weights"));
  p.start = values<std::int32_t>(read_tensor(file, "k_start"));
  p.end = values<std::int32_t>(read_tensor(file, "k_end"));
  storage() = p;
  return true;
}

const Problem& trained_input() { return storage(); }

}  // namespace dosa::oracle
