// SPDX-License-Identifier: Apache-2.0
// The looks that a call takes at its rows where statistics were asked for.
#ifndef DOSA_ENGINE_CUDA_REPORT_CUH
#define DOSA_ENGINE_CUDA_REPORT_CUH

#include "engine/cuda_schedule.hpp"
#include "gpu/check.hpp"
#include "select/report_sm90.cuh"

namespace dosa::engine {

class CudaReport {
 public:
  /// A null `stats` in `params` switches all of it off.
  CudaReport() = default;
  CudaReport(const select::ReportParams& params, dosa_stats* sums, cudaStream_t stream)
      : params_(params), sums_(sums), stream_(stream) {
    if (params_.stats != nullptr) {
      DOSA_CUDA(select::launch_report_begin_sm90(params_, stream_));
    }
  }

  /// A round was scored and not yet reduced; screen_rows is 0 where no key of it was screened.
  void round(const gpu::Round& round, int screen_rows, const int* chosen) {
    if (params_.stats == nullptr) return;
    params_.round = round;
    params_.screen_rows = screen_rows;
    params_.chosen = chosen;
    DOSA_CUDA(select::launch_report_round_sm90(params_, stream_));
  }

  void reduced() const {
    if (params_.stats != nullptr) DOSA_CUDA(select::launch_report_reduced_sm90(params_, stream_));
  }

  void lost() const {
    if (params_.stats != nullptr) DOSA_CUDA(select::launch_report_lost_sm90(params_, stream_));
  }

  void end() const {
    if (params_.stats != nullptr)
      DOSA_CUDA(select::launch_report_end_sm90(params_, sums_, stream_));
  }

 private:
  select::ReportParams params_{};
  dosa_stats* sums_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace dosa::engine

#endif  // DOSA_ENGINE_CUDA_REPORT_CUH
