// SPDX-License-Identifier: Apache-2.0
// The decode calls of dosa_cuda.h -> device engine: checks first, then launches.
#include <cuda_runtime.h>

#include "dosa/dosa_cuda.h"
#include "engine/check_parts.hpp"
#include "engine/cuda_guard.hpp"
#include "engine/cuda_model.hpp"
#include "engine/decode_check.hpp"
#include "engine/paged_run.cuh"

namespace dosa::engine {
namespace {

constexpr int kHeadDim = 128;
constexpr unsigned kQueryAlignment = 16;
constexpr unsigned kWorkspaceAlignment = 256;

dosa_status check_dims(const dosa_page_cache& cache) {
  if (cache.head_dim == kHeadDim) return DOSA_OK;
  return fail(DOSA_UNSUPPORTED, "cache.head_dim: found %d, expected %d on the device",
              cache.head_dim, kHeadDim);
}

dosa_status check_shape(const dosa_paged_problem* problem, const dosa_options* options) {
  dosa_status status = check_decode_geometry(problem, options);
  if (status == DOSA_OK) status = check_dims(*problem->cache);
  if (status != DOSA_OK) return status;
  if (options->score_model != DOSA_MODEL_DEFAULT) {
    return fail(DOSA_UNSUPPORTED, "options.score_model: found %s, expected the default",
                model_name(options->score_model));
  }
  status = check_ranges({{"problem.topk", problem->topk, 1, DOSA_CUDA_MAX_TOPK}});
  if (status != DOSA_OK) return status;
  const PagedShape shape = make_paged_shape(*problem, *options);
  PagedBuffers unused{};
  const size_t bytes = place_paged_buffers(*problem, shape, nullptr, unused);
  return bytes > options->workspace_limit ? limit_too_small(options->workspace_limit, bytes)
                                          : DOSA_OK;
}

/// Decode steps have kernels for one architecture only.
dosa_status check_card() {
  const int capability = device_capability();
  if (can_run_model(DOSA_MODEL_SM90, capability)) return DOSA_OK;
  return fail(DOSA_UNSUPPORTED, "device: found sm_%d, expected sm_90 for decode steps", capability);
}

size_t bytes_for(const dosa_paged_problem& problem, const dosa_options& options) {
  PagedBuffers unused{};
  return place_paged_buffers(problem, make_paged_shape(problem, options), nullptr, unused);
}

dosa_status check_inputs(const dosa_paged_problem& problem, const dosa_options& options) {
  const dosa_status status = check_decode_pointers(problem, options);
  if (status != DOSA_OK) return status;
  if (problem.q_stride % kQueryAlignment != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "problem.q_stride: found %lld, expected a multiple of %u",
                static_cast<long long>(problem.q_stride), kQueryAlignment);
  }
  return check_alignment("problem.q", problem.q, kQueryAlignment);
}

dosa_status check_output(const dosa_paged_problem& problem, const dosa_output* output) {
  if (output != nullptr && output->struct_size == sizeof *output &&
      (output->rows != nullptr || output->stats != nullptr)) {
    return fail(DOSA_UNSUPPORTED, "output.rows, output.stats: expected null on the device");
  }
  return check_decode_output(problem, output);
}

dosa_status check_workspace(const void* workspace, size_t found, size_t needed) {
  const dosa_status status = check_workspace_size(workspace, found, needed);
  return status == DOSA_OK ? check_alignment("workspace", workspace, kWorkspaceAlignment) : status;
}

dosa_options default_options() {
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  return options;
}

}  // namespace
}  // namespace dosa::engine

using dosa::engine::fail;
using dosa::engine::guarded_device_call;

extern "C" {

dosa_status dosa_cuda_paged_workspace_bytes(const dosa_paged_problem* problem,
                                            const dosa_options* options, size_t* bytes) {
  return guarded_device_call([&] {
    const dosa_status status = dosa::engine::check_shape(problem, options);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) return dosa::engine::null_pointer("bytes");
    *bytes = dosa::engine::bytes_for(*problem, *options);
    return DOSA_OK;
  });
}

dosa_status dosa_cuda_paged_topk(const dosa_paged_problem* problem, const dosa_options* options,
                                 const dosa_output* output, void* workspace, size_t workspace_bytes,
                                 void* stream) {
  return guarded_device_call([&] {
    using namespace dosa::engine;
    dosa_status status = dosa::engine::check_shape(problem, options);
    if (status == DOSA_OK) status = dosa::engine::check_inputs(*problem, *options);
    if (status == DOSA_OK) status = dosa::engine::check_output(*problem, output);
    if (status == DOSA_OK) {
      status = check_workspace(workspace, workspace_bytes, bytes_for(*problem, *options));
    }
    if (status == DOSA_OK) status = check_card();
    if (status == DOSA_OK) {
      cuda_paged_topk(*problem, *options, *output, workspace, static_cast<cudaStream_t>(stream));
    }
    return status;
  });
}

dosa_status dosa_cuda_paged_scores(const dosa_paged_problem* problem, float* scores,
                                   int64_t scores_stride, void* stream) {
  return guarded_device_call([&] {
    using namespace dosa::engine;
    const dosa_options options = default_options();
    dosa_status status = check_decode_geometry(problem, &options);
    if (status == DOSA_OK) status = check_dims(*problem->cache);
    if (status == DOSA_OK) status = dosa::engine::check_inputs(*problem, options);
    if (status == DOSA_OK) {
      status = check_strides({{"scores_stride", scores_stride, problem->max_context}});
    }
    const bool any = status == DOSA_OK && problem->batch > 0 && problem->max_context > 0;
    if (any && scores == nullptr) return null_pointer("scores");
    if (status == DOSA_OK) status = check_alignment("scores", scores);
    if (status == DOSA_OK) status = check_card();
    if (status == DOSA_OK && any) {
      cuda_paged_scores(*problem, scores, scores_stride, static_cast<cudaStream_t>(stream));
    }
    return status;
  });
}

dosa_status dosa_cuda_paged_gather(const dosa_paged_gather_problem* problem, void* stream) {
  return guarded_device_call([&] {
    using namespace dosa::engine;
    dosa_status status = check_gather_pointers(problem);
    if (status == DOSA_OK) status = check_dims(*problem->cache);
    if (status == DOSA_OK) status = check_card();
    if (status == DOSA_OK) cuda_paged_gather(*problem, static_cast<cudaStream_t>(stream));
    return status;
  });
}

dosa_status dosa_cuda_paged_insert(const dosa_paged_insert_problem* problem, void* stream) {
  return guarded_device_call([&] {
    using namespace dosa::engine;
    dosa_status status = check_insert_pointers(problem);
    if (status == DOSA_OK) status = check_dims(*problem->cache);
    if (status == DOSA_OK) status = check_card();
    if (status == DOSA_OK) cuda_paged_insert(*problem, static_cast<cudaStream_t>(stream));
    return status;
  });
}

}  // extern "C"
