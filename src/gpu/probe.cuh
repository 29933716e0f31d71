// SPDX-License-Identifier: Apache-2.0
//
// What the device probe measures, and how its parts talk to each other.
#ifndef DOSA_GPU_PROBE_CUH
#define DOSA_GPU_PROBE_CUH

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "gpu/probe_inputs.cuh"
#include "gpu/probe_tile.cuh"

namespace dosa::gpu {

/// Explicit operands of a batch of 64 x columns tiles, and what the device made of them.
struct TileBatch {
  int columns = 64;                   // 8, 32, 64, 128 or 256
  int steps = 1;                      // k-steps of 32; dim = 32 * steps
  std::vector<std::uint8_t> a;        // (tiles, 64, dim) e4m3
  std::vector<std::uint8_t> b;        // (tiles, columns, dim) e4m3
  std::vector<std::uint32_t> start;   // (tiles, 64, columns) fp32 bits; empty: not accumulated
  std::vector<std::uint32_t> result;  // (tiles, 64, columns) fp32 bits

  [[nodiscard]] int dim() const { return steps * kStepBytes; }
};

/// Fills operands (and start values if wanted) of `tiles` tiles, classes in turn.
[[nodiscard]] TileBatch make_batch(std::uint64_t seed, int tiles, int columns, int steps,
                                   bool with_start, int classes);

/// Multiplies on the device and fills batch.result. Throws std::runtime_error on a CUDA error.
void multiply_batch(TileBatch& batch, Route route);

/// Counts and extremes of one input class in the differential test.
struct DifferentialResult {
  unsigned long long dots = 0;
  unsigned long long mismatches = 0;
  unsigned long long invalid = 0;             // NaN results, equal on both sides
  unsigned long long bound_violations = 0;    // |error| above the proven bound (S8)
  unsigned long long first_mismatch = ~0ULL;  // tile << 32 | row << 16 | column
  float error_over_product = 0;               // largest |error| / largest |product| of the dot
  float error_over_norms = 0;                 // largest |error| / (|a| |b|)
  float error_over_bound = 0;                 // largest |error| / S8
  float error_over_simple = 0;                // largest |error| / S9
};

struct DifferentialOptions {
  std::uint64_t seed = 1;
  int columns = 64;
  int dim = 128;
  InputClass input = InputClass::kUniform;
  std::uint64_t first_tile = 0;
  std::uint64_t tiles = 1;
  std::uint64_t error_every = 8;  // tiles between two whose errors are measured
};

/// Compares the tensor core with sm90_dot on generated tiles, on the device.
[[nodiscard]] DifferentialResult run_differential(const DifferentialOptions& options);

/// How the accumulator meets the products of a k-step.
enum class Joining : int {
  kAddEach,  // each group is rounded, then added in fp32
  kAligned,  // aligned with the products of the group
  kChain     // the groups chain from zero, then one fp32 addition
};

/// A candidate description of one k-step; the probe keeps the ones that fit.
struct Hypothesis {
  int fraction_bits;    // kept below the largest exponent
  int align_rounding;   // of each term: 0 toward zero, 1 down, 2 nearest even
  int result_bits;      // fraction bits of the result
  int result_rounding;  // as align_rounding
  int group;            // products added in one go: 4, 8, 16, 32
  Joining joining;
  int interleaved;    // groups of 16: 0 halves of the step, 1 alternating pairs
  int exponent_rule;  // 0 fields, zeros ignored; 1 fields, zeros count; 2 significands normalised;
                      // 3 products normalised
};

/// All combinations worth trying.
[[nodiscard]] std::vector<Hypothesis> hypothesis_grid();

/// Mismatches of each hypothesis over the batch (one k-step); a hypothesis is dropped, and its
/// count extrapolated, once it misses more than `give_up` vectors.
[[nodiscard]] std::vector<double> count_mismatches(const TileBatch& batch,
                                                   const std::vector<Hypothesis>& hypotheses,
                                                   unsigned give_up);

/// Prints the designed probes: what is kept, dropped and rounded, one line each.
void print_designed_probes(std::FILE* out);

/// Throws std::runtime_error naming the call unless status is cudaSuccess.
void check_cuda(cudaError_t status, const char* call);

/// Device memory for the length of a scope.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) {
    check_cuda(cudaMalloc(&pointer_, bytes == 0 ? 1 : bytes), "cudaMalloc");
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(pointer_); }

  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(pointer_);
  }

 private:
  void* pointer_ = nullptr;
};

template <typename T>
void upload(const DeviceBytes& device, const std::vector<T>& host) {
  check_cuda(
      cudaMemcpy(device.as<void>(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
      "cudaMemcpy to the device");
}

template <typename T>
void download(std::vector<T>& host, const DeviceBytes& device) {
  check_cuda(
      cudaMemcpy(host.data(), device.as<void>(), host.size() * sizeof(T), cudaMemcpyDeviceToHost),
      "cudaMemcpy from the device");
}

}  // namespace dosa::gpu

#endif  // DOSA_GPU_PROBE_CUH
