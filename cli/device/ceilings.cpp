// SPDX-License-Identifier: Apache-2.0
#include "device/ceilings.hpp"

#include <dlfcn.h>

#include "device/events.hpp"
#include "device/memory.hpp"
#include "measure.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define DOSA_HAS_CUBLASLT 1
#endif

namespace dosa::cli {
namespace {

Ceiling measure_copy() {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  constexpr int kRuns = 9;
  Ceiling ceiling{"cudaMemcpyAsync of 2 GiB on the device, bytes read and written", {}};
  const DeviceArray<std::byte> from(kBytes);
  const DeviceArray<std::byte> to(kBytes);
  DOSA_CUDA(cudaMemset(from.get(), 1, kBytes));
  const Event begin;
  const Event end;
  for (int run = -1; run < kRuns; ++run) {  // the first one warms up
    begin.record();
    DOSA_CUDA(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice));
    end.record();
    const double seconds = end.seconds_since(begin);
    if (run >= 0) ceiling.rates.push_back(2.0 * static_cast<double>(kBytes) / seconds);
  }
  return ceiling;
}

#ifdef DOSA_HAS_CUBLASLT

/// cuBLASLt as it is found when the program runs; the command does not link it.
class Product {
 public:
  static constexpr int kSize = 8192;

  Product() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
      library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) break;
    }
    ready_ = library_ != nullptr && prepare();
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() = default;  // the library and its handle stay until the process ends

  [[nodiscard]] bool ready() const { return ready_; }

  [[nodiscard]] bool multiply() const {
    const float one = 1.0F;
    const float zero = 0.0F;
    const auto matmul = function<decltype(&cublasLtMatmul)>("cublasLtMatmul");
    return matmul(handle_, operation_, &one, a_.get(), operand_, b_.get(), operand_, &zero,
                  c_.get(), result_, c_.get(), result_, &heuristic_.algo, workspace_.get(),
                  workspace_.bytes(), nullptr) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  template <class Function>
  [[nodiscard]] Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  bool prepare() {
    constexpr std::size_t kWorkspace = std::size_t{64} << 20;
    constexpr auto kCells = static_cast<std::size_t>(kSize) * kSize;
    const auto create = function<decltype(&cublasLtCreate)>("cublasLtCreate");
    const auto describe = function<decltype(&cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
    const auto set =
        function<decltype(&cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
    const auto layout =
        function<decltype(&cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
    const auto prefer =
        function<decltype(&cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
    const auto limit = function<decltype(&cublasLtMatmulPreferenceSetAttribute)>(
        "cublasLtMatmulPreferenceSetAttribute");
    const auto choose =
        function<decltype(&cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
    if (create == nullptr || describe == nullptr || set == nullptr || layout == nullptr ||
        prefer == nullptr || limit == nullptr || choose == nullptr ||
        dlsym(library_, "cublasLtMatmul") == nullptr) {
      return false;
    }
    a_ = DeviceArray<std::uint8_t>(kCells);
    b_ = DeviceArray<std::uint8_t>(kCells);
    c_ = DeviceArray<std::uint16_t>(kCells);
    workspace_ = DeviceArray<std::byte>(kWorkspace);
    fill(a_);
    fill(b_);
    cublasLtMatmulPreference_t preference = nullptr;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    int found = 0;
    return create(&handle_) == CUBLAS_STATUS_SUCCESS &&
           describe(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
               CUBLAS_STATUS_SUCCESS &&
           layout(&operand_, CUDA_R_8F_E4M3, kSize, kSize, kSize) == CUBLAS_STATUS_SUCCESS &&
           layout(&result_, CUDA_R_16BF, kSize, kSize, kSize) == CUBLAS_STATUS_SUCCESS &&
           prefer(&preference) == CUBLAS_STATUS_SUCCESS &&
           limit(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                 sizeof kWorkspace) == CUBLAS_STATUS_SUCCESS &&
           choose(handle_, operation_, operand_, operand_, result_, result_, preference, 1,
                  &heuristic_, &found) == CUBLAS_STATUS_SUCCESS &&
           found > 0;
  }

  /// Varied codes without NaN: power, and with it the clock, depends on what is multiplied.
  static void fill(const DeviceArray<std::uint8_t>& array) {
    std::vector<std::uint8_t> codes(array.size());
    std::uint32_t state = 12345;
    for (std::uint8_t& code : codes) {
      state = state * 1664525U + 1013904223U;
      code = static_cast<std::uint8_t>(state >> 24);
      if ((code & 0x7f) == 0x7f) code = 0;
    }
    DOSA_CUDA(cudaMemcpy(array.get(), codes.data(), array.bytes(), cudaMemcpyHostToDevice));
  }

  void* library_ = nullptr;
  bool ready_ = false;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t operand_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatmulHeuristicResult_t heuristic_{};
  DeviceArray<std::uint8_t> a_, b_;
  DeviceArray<std::uint16_t> c_;
  DeviceArray<std::byte> workspace_;
};

Ceiling measure_product() {
  constexpr int kRuns = 12;
  constexpr int kEach = 25;  // products of a run: long enough for the power limit to act
  constexpr double kOperations = 2.0 * Product::kSize * Product::kSize * Product::kSize;
  const Product product;
  if (!product.ready()) return {"not measured: no usable cuBLASLt was found", {}};
  Ceiling ceiling{"cuBLASLt, e4m3 8192 x 8192 x 8192 to bf16, runs of 25", {}};
  const Event begin;
  const Event end;
  for (int run = -1; run < kRuns; ++run) {  // the first one warms up
    begin.record();
    for (int i = 0; i < kEach; ++i) {
      if (!product.multiply()) return {"not measured: cuBLASLt refused the product", {}};
    }
    end.record();
    const double seconds = end.seconds_since(begin);
    if (run >= 0) ceiling.rates.push_back(kEach * kOperations / seconds);
  }
  return ceiling;
}

#else

Ceiling measure_product() { return {"not measured: built without cublasLt.h", {}}; }

#endif

}  // namespace

double Ceiling::rate() const { return rates.empty() ? 0.0 : bench::median(rates); }

Ceilings no_ceilings() {
  const Ceiling none{"not measured: --no-ceilings", {}};
  return {none, none};
}

Ceilings measure_ceilings() { return {measure_copy(), measure_product()}; }

}  // namespace dosa::cli
