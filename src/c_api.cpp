// SPDX-License-Identifier: Apache-2.0
// dosa.h -> engine.
#include <cstddef>

#include "c_api_guard.hpp"
#include "dosa/dosa.h"
#include "engine/check.hpp"
#include "engine/engine.hpp"
#include "engine/error.hpp"
#include "engine/verify.hpp"
#include "numeric/arena.hpp"
#include "plan/operands.hpp"

using dosa::guarded;
using dosa::engine::check_inputs;
using dosa::engine::check_output;
using dosa::engine::check_shape;
using dosa::engine::check_workspace;
using dosa::engine::fail;

extern "C" {

dosa_status dosa_options_init(dosa_options* options, size_t struct_size) {
  return guarded([&] {
    if (options == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "options: found null, expected a pointer");
    }
    if (struct_size != sizeof *options) {
      return fail(DOSA_INVALID_ARGUMENT, "struct_size: found %zu, expected %zu", struct_size,
                  sizeof *options);
    }
    *options = {};
    options->struct_size = struct_size;
    options->projection = 1;
    options->allowance_groups = 4;
    options->workspace_limit = std::uint64_t{64} << 20;
    return DOSA_OK;
  });
}

dosa_status dosa_workspace_bytes(const dosa_problem* problem, const dosa_options* options,
                                 size_t* bytes) {
  return guarded([&] {
    const dosa_status status = check_shape(problem, options);
    if (status != DOSA_OK) return status;
    if (bytes == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "bytes: found null, expected a pointer");
    }
    *bytes = dosa::engine::layout(*problem, *options).bytes;
    return DOSA_OK;
  });
}

dosa_status dosa_topk(const dosa_problem* problem, const dosa_options* options,
                      const dosa_output* output, void* workspace, size_t workspace_bytes) {
  return guarded([&] {
    dosa_status status = check_shape(problem, options);
    if (status == DOSA_OK) status = check_inputs(*problem, *options);
    if (status == DOSA_OK) status = check_output(*problem, output);
    if (status == DOSA_OK) {
      status = check_workspace(*problem, *options, workspace, workspace_bytes);
    }
    if (status == DOSA_OK) {
      const dosa::WorkspaceLoan loan(workspace, workspace_bytes);
      dosa::engine::topk(*problem, *options, *output, workspace, nullptr);
    }
    return status;
  });
}

dosa_status dosa_scores(const dosa_problem* problem, const dosa_options* options, int64_t row_begin,
                        int64_t row_end, float* scores, int64_t scores_stride, void* workspace,
                        size_t workspace_bytes) {
  return guarded([&] {
    dosa_status status = check_shape(problem, options);
    if (status == DOSA_OK) status = check_inputs(*problem, *options);
    if (status == DOSA_OK) {
      status = check_workspace(*problem, *options, workspace, workspace_bytes);
    }
    if (status != DOSA_OK) return status;
    if (row_begin < 0 || row_end < row_begin || row_end > problem->num_queries) {
      return fail(DOSA_INVALID_ARGUMENT, "rows: found [%lld, %lld), expected a part of [0, %lld)",
                  static_cast<long long>(row_begin), static_cast<long long>(row_end),
                  static_cast<long long>(problem->num_queries));
    }
    if (scores == nullptr && row_end > row_begin && problem->num_keys > 0) {
      return fail(DOSA_INVALID_ARGUMENT, "scores: found null, expected a pointer");
    }
    if (scores_stride < problem->num_keys) {
      return fail(DOSA_INVALID_ARGUMENT, "scores_stride: found %lld, expected at least %lld",
                  static_cast<long long>(scores_stride), static_cast<long long>(problem->num_keys));
    }
    const dosa::WorkspaceLoan loan(workspace, workspace_bytes);
    dosa::engine::scores(*problem, *options, row_begin, row_end, scores, scores_stride, workspace);
    return DOSA_OK;
  });
}

dosa_status dosa_bounds(const dosa_problem* problem, const dosa_options* options, int64_t row,
                        dosa_certificate* certificate, float* bounds, void* workspace,
                        size_t workspace_bytes) {
  return guarded([&] {
    dosa_status status = check_shape(problem, options);
    if (status == DOSA_OK) status = check_inputs(*problem, *options);
    if (status == DOSA_OK) {
      status = check_workspace(*problem, *options, workspace, workspace_bytes);
    }
    if (status != DOSA_OK) return status;
    if (row < 0 || row >= problem->num_queries) {
      return fail(DOSA_INVALID_ARGUMENT, "row: found %lld, expected 0 to %lld",
                  static_cast<long long>(row), static_cast<long long>(problem->num_queries - 1));
    }
    if (certificate != nullptr && certificate->struct_size != sizeof *certificate) {
      return fail(DOSA_INVALID_ARGUMENT, "certificate.struct_size: found %zu, expected %zu",
                  certificate->struct_size, sizeof *certificate);
    }
    if (options->mode == DOSA_MODE_BASE || options->mode == DOSA_MODE_FULL) {
      return fail(DOSA_INVALID_ARGUMENT, "options.mode: found %d, expected a mode that screens",
                  options->mode);
    }
    const dosa::WorkspaceLoan loan(workspace, workspace_bytes);
    dosa::engine::bounds(*problem, *options, row, certificate, bounds, workspace);
    return DOSA_OK;
  });
}

dosa_status dosa_verify(const dosa_problem* problem, const dosa_options* options,
                        dosa_verification* report) {
  return guarded([&] {
    dosa_status status = check_shape(problem, options);
    if (status == DOSA_OK) status = check_inputs(*problem, *options);
    if (status != DOSA_OK) return status;
    if (report == nullptr) {
      return fail(DOSA_INVALID_ARGUMENT, "report: found null, expected a pointer");
    }
    if (report->struct_size != sizeof *report) {
      return fail(DOSA_INVALID_ARGUMENT, "report.struct_size: found %zu, expected %zu",
                  report->struct_size, sizeof *report);
    }
    dosa::engine::verify(*problem, *options, *report);
    if (report->violations > 0) {
      return fail(
          DOSA_CERTIFICATE, "certificate: row %lld, key %lld: bound %.9g, score %.9g",
          static_cast<long long>(report->witness_row), static_cast<long long>(report->witness_key),
          static_cast<double>(report->witness_bound), static_cast<double>(report->witness_score));
    }
    if (report->rows_different > 0) {
      return fail(DOSA_CERTIFICATE,
                  "answer: %lld rows differ from every key scored, first row %lld",
                  static_cast<long long>(report->rows_different),
                  static_cast<long long>(report->first_different));
    }
    return DOSA_OK;
  });
}

const char* dosa_last_error(void) { return dosa::engine::last_error(); }

const char* dosa_status_text(dosa_status status) {
  switch (status) {
    case DOSA_OK:
      return "success";
    case DOSA_INVALID_ARGUMENT:
      return "an argument is not allowed";
    case DOSA_WORKSPACE_TOO_SMALL:
      return "the workspace is smaller than dosa_workspace_bytes() reported";
    case DOSA_UNSUPPORTED:
      return "this build or machine cannot serve the request";
    case DOSA_CERTIFICATE:
      return "a bound was violated or an answer differs: please report it";
    case DOSA_INTERNAL:
      return "an internal failure";
  }
  return "unknown status";
}

#define DOSA_TEXT2(x) #x
#define DOSA_TEXT(x) DOSA_TEXT2(x)
const char* dosa_version(void) {
  return DOSA_TEXT(DOSA_VERSION_MAJOR) "." DOSA_TEXT(DOSA_VERSION_MINOR) "." DOSA_TEXT(
      DOSA_VERSION_PATCH);
}

const char* dosa_simd_target(void) { return dosa::plan::simd_name(); }

}  // extern "C"
