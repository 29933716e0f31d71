// SPDX-License-Identifier: Apache-2.0
// dosa_cuda_verify: the refusals of dosa_cuda_topk, then the audit.
#include "dosa/dosa_cuda.h"
#include "engine/cuda_audit.cuh"
#include "engine/cuda_guard.hpp"
#include "engine/cuda_model.hpp"
#include "engine/error.hpp"

namespace dosa::engine {
namespace {

constexpr uintptr_t kAnyAddress = 4096;

/// What dosa_cuda_topk would refuse. It is asked with no room, which it notices last and before
/// anything is enqueued.
dosa_status check_call(const dosa_problem* problem, const dosa_options* options) {
  size_t bytes = 0;
  const dosa_status status = dosa_cuda_workspace_bytes(problem, options, &bytes);
  if (status != DOSA_OK) return status;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = reinterpret_cast<int32_t*>(kAnyAddress);
  output.indices_stride = problem->topk;
  const dosa_status found =
      dosa_cuda_topk(problem, options, &output, reinterpret_cast<void*>(kAnyAddress), 0, nullptr);
  if (found != DOSA_WORKSPACE_TOO_SMALL) return found;
  clear_error();
  return DOSA_OK;
}

dosa_status verify(const dosa_problem* problem, const dosa_options* options,
                   dosa_cuda_verification* report) {
  if (report == nullptr || report->struct_size != sizeof *report) {
    return fail(DOSA_INVALID_ARGUMENT, "report: expected a structure with its size set");
  }
  dosa_status status = check_call(problem, options);
  if (status == DOSA_OK) status = check_device(*problem, *options);
  if (status != DOSA_OK) return status;
  cuda_audit(*problem, *options, true, *report);
  const bool good = report->violations == 0 && report->rows_different == 0;
  return good ? DOSA_OK
              : fail(DOSA_CERTIFICATE,
                     "audit: found %lld bounds below their score and %lld wrong rows, expected 0",
                     static_cast<long long>(report->violations),
                     static_cast<long long>(report->rows_different));
}

}  // namespace
}  // namespace dosa::engine

extern "C" dosa_status dosa_cuda_verify(const dosa_problem* problem, const dosa_options* options,
                                        dosa_cuda_verification* report) {
  return dosa::engine::guarded_device_call(
      [&] { return dosa::engine::verify(problem, options, report); });
}
