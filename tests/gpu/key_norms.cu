// SPDX-License-Identifier: Apache-2.0
// n(k) of every key (S17): at least |k| and 5 X(k), little more, and NaN where a key has no bound.
// Exit code 77: no sm_90 device (skipped).
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/device_array.hpp"
#include "gpu/report.hpp"
#include "numeric/e4m3.hpp"
#include "plan/prepare_sm90.cuh"

namespace dosa::testing {
namespace {

constexpr int kDim = 128;
constexpr int kKeys = 5000;

/// Random codes up to a random size, with one peak, zeros, or subnormal codes alone.
std::vector<uint8_t> make_keys() {
  std::mt19937_64 random(5);
  std::vector<uint8_t> codes(static_cast<size_t>(kKeys) * kDim);
  for (int key = 0; key < kKeys; ++key) {
    const unsigned most = key % 16;  // of the exponent field
    for (int d = 0; d < kDim; ++d) {
      const uint64_t bits = random();
      uint64_t code = (bits & 0x87) | (bits >> 8) % (most + 1) << 3;
      if ((code & 0x7f) == 0x7f) --code;
      if (key % 5 == 1 && d != key % kDim) code = bits & 1;
      if (key % 97 == 3) code = bits & 0x80;
      codes[static_cast<size_t>(key) * kDim + d] = static_cast<uint8_t>(code);
    }
  }
  return codes;
}

/// max(|k|, 5 X(k)) from the codes in double.
double expected_norm(const uint8_t* codes) {
  double square = 0;
  double largest = 0x1p-6;
  for (int d = 0; d < kDim; ++d) {
    const double value = e4m3_units(codes[d]) * 0x1p-9;
    square += value * value;
    largest = std::max(largest, std::abs(value));
  }
  return std::max(std::sqrt(square), 5 * std::exp2(std::floor(std::log2(largest))));
}

void check_norms() {
  std::vector<uint8_t> codes = make_keys();
  std::vector<float> scales(kKeys, 0.5f);
  const float odd[] = {0.0f, -1.0f, 1e-40f, INFINITY, NAN, 0x1p51f};
  for (int i = 0; i < 6; ++i) scales[100 + i] = odd[i];
  codes[200 * kDim + 7] = 0x7f;
  const int units = (kKeys + gpu::kUnitKeys - 1) / gpu::kUnitKeys;
  const DeviceArray<uint8_t> k(codes);
  const DeviceArray<float> k_scale(scales);
  const DeviceArray<float2> meta(static_cast<size_t>(units) * gpu::kUnitKeys);
  meta.poison();
  DOSA_CUDA(plan::launch_key_meta_sm90(k.get(), kDim, kDim, k_scale.get(), kKeys, units, meta.get(),
                                       nullptr));
  const std::vector<float2> found = meta.host();
  for (int key = 0; key < static_cast<int>(found.size()); ++key) {
    const std::string name = "key " + std::to_string(key);
    const double norm = static_cast<double>(found[key].y);
    if (key >= kKeys || (key >= 100 && key < 106) || key == 200) {
      expect(std::isnan(norm), name, std::to_string(norm) + ", expected NaN");
      continue;
    }
    const double exact = expected_norm(codes.data() + static_cast<size_t>(key) * kDim);
    expect(norm >= exact && norm <= exact * (1 + 0x1p-18), name,
           std::to_string(norm) + ", expected " + std::to_string(exact));
    expect(found[key].x == scales[key], name, "scale " + std::to_string(found[key].x));
  }
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"norms", check_norms}}, argc, argv);
}
