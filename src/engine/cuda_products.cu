// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_products.hpp"

#include "engine/cuda_model.hpp"
#include "engine/error.hpp"
#include "gpu/check.hpp"
#include "refine/products_mma.cuh"
#include "screen/screen_mma.cuh"
#include "select/recover_mma.cuh"

namespace dosa::engine {
namespace {

constexpr CudaProducts kSm90{refine::launch_dense_sm90,
                             screen::launch_screen_sm90,
                             screen::launch_bounds_sm90,
                             refine::launch_refine_sm90,
                             select::launch_recover_sm90,
                             plan::kRoundingSm90,
                             true};
constexpr CudaProducts kMmaF16{refine::launch_dense_mma_f16,
                               screen::launch_screen_mma_f16,
                               screen::launch_bounds_mma_f16,
                               refine::launch_refine_mma_f16,
                               select::launch_recover_mma_f16,
                               plan::kRoundingMmaF16,
                               false};
constexpr CudaProducts kMmaFp8{refine::launch_dense_mma_fp8,
                               screen::launch_screen_mma_fp8,
                               screen::launch_bounds_mma_fp8,
                               refine::launch_refine_mma_fp8,
                               select::launch_recover_mma_fp8,
                               plan::kRoundingMmaFp8,
                               false};

/// K whose records, four per selected key, a block's shared memory holds when they are reduced.
int most_topk() {
  constexpr int kOwn = 12 * 1024;  // what reduction itself needs, rounded up
  constexpr int kRecords = 1024;   // records come in thousands
  int device = 0;
  int bytes = 0;
  DOSA_CUDA(cudaGetDevice(&device));
  DOSA_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const int records = (bytes - kOwn) / static_cast<int>(sizeof(uint64_t)) / kRecords * kRecords;
  return records / 4;
}

}  // namespace

int device_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  DOSA_CUDA(cudaGetDevice(&device));
  DOSA_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  DOSA_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

bool can_run_model(int model, int capability) {
  switch (model) {
    case DOSA_MODEL_SM90:
      return capability == 90;  // wgmma and setmaxnreg exist only there
    case DOSA_MODEL_MMA_F16:
      return capability >= 80;
    case DOSA_MODEL_MMA_FP8:
      return capability == 89 || capability / 10 == 12;
    default:
      return false;
  }
}

int default_model(int capability) {
  for (const int model : {DOSA_MODEL_SM90, DOSA_MODEL_MMA_F16}) {
    if (can_run_model(model, capability)) return model;
  }
  return DOSA_MODEL_DEFAULT;
}

const char* model_name(int model) {
  switch (model) {
    case DOSA_MODEL_IEEE:
      return "ieee";
    case DOSA_MODEL_SM90:
      return "sm90";
    case DOSA_MODEL_MMA_F16:
      return "mma_f16";
    case DOSA_MODEL_MMA_FP8:
      return "mma_fp8";
    default:
      return "none";
  }
}

dosa_status check_device(const dosa_problem& problem, const dosa_options& options) {
  const int capability = device_capability();
  if (default_model(capability) == DOSA_MODEL_DEFAULT) {
    return fail(DOSA_UNSUPPORTED, "device: found sm_%d, expected sm_80 or later", capability);
  }
  if (options.score_model != DOSA_MODEL_DEFAULT &&
      !can_run_model(options.score_model, capability)) {
    return fail(DOSA_UNSUPPORTED, "options.score_model: found %s, which sm_%d cannot run",
                model_name(options.score_model), capability);
  }
  const int most = most_topk();
  if (problem.topk > most) {
    return fail(DOSA_UNSUPPORTED, "problem.topk: found %d, expected at most %d on sm_%d",
                problem.topk, most, capability);
  }
  return DOSA_OK;
}

const CudaProducts& cuda_products(int model) {
  if (model == DOSA_MODEL_DEFAULT) model = default_model(device_capability());
  if (model == DOSA_MODEL_MMA_F16) return kMmaF16;
  return model == DOSA_MODEL_MMA_FP8 ? kMmaFp8 : kSm90;
}

}  // namespace dosa::engine
