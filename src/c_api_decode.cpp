// SPDX-License-Identifier: Apache-2.0
// dosa_decode.h -> engine.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "c_api_guard.hpp"
#include "dosa/dosa_decode.h"
#include "engine/decode.hpp"
#include "engine/decode_check.hpp"
#include "engine/decode_pages.hpp"
#include "engine/decode_witness.hpp"
#include "numeric/arena.hpp"

using dosa::guarded;
using dosa::engine::fail;

extern "C" {

dosa_status dosa_witness_bytes(int32_t topk, size_t* bytes) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_topk_range(topk);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "bytes: found null, expected a pointer");
    }
    *bytes = dosa::engine::witness_bytes(topk);
    return DOSA_OK;
  });
}

dosa_status dosa_witness_set(void* state, int32_t topk, const int32_t* ids, int64_t count) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_topk_range(topk);
    if (status != DOSA_OK) return status;
    if (state == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "state: found null, expected a pointer");
    }
    if (reinterpret_cast<std::uintptr_t>(state) % 4 != 0) {
      return fail(DOSA_INVALID_ARGUMENT, "state: found an odd address, expected a multiple of 4");
    }
    if (count < 0) {
      return fail(DOSA_INVALID_ARGUMENT, "count: found %lld, expected 0 or more",
                  static_cast<long long>(count));
    }
    if (count > 0 && ids == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "ids: found null, expected a pointer");
    }
    dosa::engine::WitnessState(state, topk).set(ids, count);
    return DOSA_OK;
  });
}

dosa_status dosa_paged_workspace_bytes(const dosa_paged_problem* problem,
                                       const dosa_options* options, size_t* bytes) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_decode_shape(problem, options);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "bytes: found null, expected a pointer");
    }
    *bytes = dosa::engine::decode_layout(*problem, *options).bytes;
    return DOSA_OK;
  });
}

dosa_status dosa_paged_topk(const dosa_paged_problem* problem, const dosa_options* options,
                            const dosa_output* output, void* workspace, size_t workspace_bytes) {
  return guarded([&] {
    using namespace dosa::engine;
    dosa_status status = check_decode_shape(problem, options);
    if (status == DOSA_OK) status = check_decode_inputs(*problem, *options);
    if (status == DOSA_OK) status = check_decode_output(*problem, output);
    if (status == DOSA_OK) {
      status = check_decode_workspace(*problem, *options, workspace, workspace_bytes);
    }
    if (status == DOSA_OK) {
      const dosa::WorkspaceLoan loan(workspace, workspace_bytes);
      paged_topk(*problem, *options, *output, workspace);
    }
    return status;
  });
}

dosa_status dosa_paged_gather(const dosa_paged_gather_problem* problem) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_gather(problem);
    if (status == DOSA_OK) dosa::engine::gather(*problem);
    return status;
  });
}

dosa_status dosa_paged_insert(const dosa_paged_insert_problem* problem) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_insert(problem);
    if (status == DOSA_OK) dosa::engine::insert(*problem);
    return status;
  });
}

}  // extern "C"
