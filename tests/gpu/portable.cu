// SPDX-License-Identifier: Apache-2.0
// The mma.sync kernels: their dot products against the model of the adder, bit for bit where the
// card's adder was measured, their bounds against their scores, and the refusals.
//
// Usage: portable [all] [mma_f16|mma_fp8]. Exit code 77: no device that runs the model (skipped).
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gpu/reference.hpp"
#include "numeric/e4m3.hpp"
#include "numeric/mma_dot.hpp"
#include "plan/product_rounding.hpp"

namespace dosa::testing {
namespace {

constexpr int kMeasured = 90;  // the capability whose fp16 adder is known
const std::vector<int> kDims = {32, 64, 128};

/// A code of class `kind`: any, near one, peaks over crumbs, a ramp of magnitudes.
uint8_t draw_code(std::mt19937& random, int kind, int d) {
  auto code = static_cast<uint8_t>(random());
  if (kind == 1) code = static_cast<uint8_t>((random() & 0x87) | 0x38);
  if (kind == 2) code = static_cast<uint8_t>(random() % 40 == 0 ? 0x7e : random() & 0x8f);
  if (kind == 3) code = static_cast<uint8_t>((random() & 0x87) | (d / 8 << 3 & 0x78));
  return e4m3_is_nan(code) ? 0x38 : code;
}

/// One head of weight 1 and keys of scale 1: the score is the dot product, or 0 where it is less.
HostInputs make_dots(int queries, int keys, int dim, unsigned seed) {
  HostInputs inputs = make_shape(queries, keys, 1);
  inputs.dim = dim;
  inputs.q.resize(static_cast<size_t>(queries) * dim);
  inputs.k.resize(static_cast<size_t>(keys) * dim);
  inputs.weights.assign(queries, 1.0f);
  std::mt19937 random(seed);
  for (size_t i = 0; i < inputs.q.size(); ++i) {
    const int row = static_cast<int>(i / dim);
    // Odd rows are the row before with the other sign: so every product is seen once.
    inputs.q[i] = row % 2 == 1 ? inputs.q[i - dim] ^ 0x80
                               : draw_code(random, row / 2 % 4, static_cast<int>(i % dim));
  }
  for (size_t i = 0; i < inputs.k.size(); ++i) {
    const int key = static_cast<int>(i / dim);
    inputs.k[i] = draw_code(random, key % 4, static_cast<int>(i % dim));
  }
  return inputs;
}

double norm(const uint8_t* codes, int dim, double& largest) {
  double sum = 0.0;
  largest = 0x1p-6;
  for (int d = 0; d < dim; ++d) {
    const double value = e4m3_units(codes[d]) * 0x1p-9;
    sum += value * value;
    largest = std::max(largest, std::abs(value));
  }
  return std::sqrt(sum);
}

double exact_dot(const uint8_t* a, const uint8_t* b, int dim) {
  double sum = 0.0;  // multiples of 2^-18 below 2^25: exact
  for (int d = 0; d < dim; ++d) sum += e4m3_units(a[d]) * 0x1p-9 * (e4m3_units(b[d]) * 0x1p-9);
  return sum;
}

/// Every product of a problem: equal to the emulation where the adder is known, within the bound
/// everywhere.
void check_dots(int dim) {
  const bool fp16 = score_model == DOSA_MODEL_MMA_F16;
  const bool known = fp16 && engine::device_capability() == kMeasured;
  const plan::ProductRounding rounding = fp16 ? plan::kRoundingMmaF16 : plan::kRoundingMmaFp8;
  const HostInputs host = make_dots(64, 5000, dim, 31);
  const DeviceInputs inputs(host, 16);
  const std::vector<float> scores = dense_scores(inputs);
  int64_t different = 0;
  double most = 0.0;
  for (int row = 0; row < host.queries; ++row) {
    const uint8_t* const q = host.q.data() + static_cast<size_t>(row) * dim;
    double top_q = 0.0;
    const double norm_q = norm(q, dim, top_q);
    for (int key = 0; key < host.keys; ++key) {
      const uint8_t* const k = host.k.data() + static_cast<size_t>(key) * dim;
      const float found = scores[static_cast<size_t>(row) * host.keys + key];
      if (known) {
        const float model = std::bit_cast<float>(mma_dot_bits(kMmaF16Sm90, q, k, dim));
        if (found != std::max(model, 0.0f)) ++different;
      }
      if (key % 16 != 0) continue;
      double top_k = 0.0;
      const double norms = norm_q * norm(k, dim, top_k);
      const double bound = rounding.per_norm * norms + rounding.per_product * top_q * top_k;
      const double error = std::abs(found - std::max(exact_dot(q, k, dim), 0.0));
      if (bound > 0.0) most = std::max(most, error / bound);
    }
  }
  const std::string name = "dots D = " + std::to_string(dim);
  expect(different == 0, name, std::to_string(different) + " differ from the model");
  expect(most <= 1.0, name, "error " + std::to_string(most) + " of the bound");
  std::printf(
      "%-20s %lld products, %s, at most %.4f of the bound\n", name.c_str(),
      static_cast<long long>(scores.size()),
      known ? (different == 0 ? "all as the model says" : "MODEL MISSED") : "adder never measured",
      most);
}

/// Every bound of every row and key against the score, and every answer, by the library's audit.
void check_audit(const std::string& name, const HostInputs& host, int topk) {
  const DeviceInputs inputs(host, topk);
  for (const int heads : {6, 14, 22, 30}) {
    const dosa_options options = default_options(DOSA_MODE_DOSA, heads);
    dosa_cuda_verification report{};
    report.struct_size = sizeof report;
    const dosa_status status = dosa_cuda_verify(&inputs.problem, &options, &report);
    expect(status == DOSA_OK && report.bounded > 0, name, dosa_last_error());
    std::printf("%-20s r %2d: %lld bounded, %lld rejected, %lld violations, margin %g\n",
                name.c_str(), heads, static_cast<long long>(report.bounded),
                static_cast<long long>(report.rejected), static_cast<long long>(report.violations),
                report.min_margin);
  }
}

/// Where every sum is exact, all models agree.
void check_order_free() {
  const HostInputs host = make_int(70, 30000, 32, 33);
  const DeviceInputs inputs(host, 300);
  const Answer own = run_topk(inputs, default_options(DOSA_MODE_DOSA, 14));
  dosa_options other = default_options(DOSA_MODE_FULL, 0);
  other.score_model = DOSA_MODEL_DEFAULT;
  const Answer wanted = run_topk(inputs, other);
  expect(!own.ids.empty() && own.ids == wanted.ids && own.scores == wanted.scores, "order free",
         "ids or scores differ from those of the default model");
}

void check_refusals() {
  const HostInputs host = make_int(2, 300, 4, 34);
  const DeviceInputs inputs(host, 8);
  const int capability = engine::device_capability();
  for (const int model :
       {DOSA_MODEL_IEEE, DOSA_MODEL_SM90, DOSA_MODEL_MMA_F16, DOSA_MODEL_MMA_FP8}) {
    dosa_options options = default_options(DOSA_MODE_DOSA, 0);
    options.score_model = model;
    size_t bytes = 0;
    dosa_cuda_workspace_bytes(&inputs.problem, &options, &bytes);
    const DeviceArray<uint8_t> workspace(bytes);
    const DeviceArray<int32_t> ids(16);
    dosa_output output{};
    output.struct_size = sizeof output;
    output.indices = ids.get();
    output.indices_stride = 8;
    const dosa_status status =
        dosa_cuda_topk(&inputs.problem, &options, &output, workspace.get(), bytes, nullptr);
    const dosa_status wanted =
        engine::can_run_model(model, capability) ? DOSA_OK : DOSA_UNSUPPORTED;
    expect(status == wanted, std::string("model ") + engine::model_name(model),
           "status " + std::to_string(status) + ": " + dosa_last_error());
    DOSA_CUDA(cudaDeviceSynchronize());
  }
}

void check_all() {
  for (const int dim : kDims) check_dots(dim);
  check_audit("real32", make_real(130, 20000, 32, 35), 64);
  check_audit("real64", make_real(66, 20000, 64, 36), 512);
  check_audit("real128", make_real(34, 20000, 128, 37), 64);
  check_audit("int32", make_int(70, 20000, 32, 38), 64);
  check_order_free();
  check_refusals();
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  const std::string model = argc > 2 ? argv[2] : "mma_f16";
  return run_parts({{"portable", check_all}}, argc, argv, choose_model(model));
}
