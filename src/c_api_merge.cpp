// SPDX-License-Identifier: Apache-2.0
// dosa_merge.h -> engine.
#include <cstddef>

#include "c_api_guard.hpp"
#include "dosa/dosa_merge.h"
#include "engine/error.hpp"
#include "engine/merge.hpp"
#include "numeric/arena.hpp"

using dosa::guarded;
using dosa::engine::fail;

extern "C" {

dosa_status dosa_merge_workspace_bytes(const dosa_candidates* candidates, size_t* bytes) {
  return guarded([&] {
    const dosa_status status = dosa::engine::check_candidates_shape(candidates);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "bytes: found null, expected a pointer");
    }
    *bytes = dosa::engine::merge_workspace_bytes(*candidates);
    return DOSA_OK;
  });
}

dosa_status dosa_merge_topk(const dosa_candidates* candidates, const dosa_output* output,
                            void* workspace, size_t workspace_bytes) {
  return guarded([&] {
    dosa_status status = dosa::engine::check_candidates_shape(candidates);
    if (status == DOSA_OK) {
      status = dosa::engine::check_merge(*candidates, output, workspace, workspace_bytes);
    }
    if (status == DOSA_OK) {
      const dosa::WorkspaceLoan loan(workspace, workspace_bytes);
      dosa::engine::merge_topk(*candidates, *output, workspace);
    }
    return status;
  });
}

}  // extern "C"
