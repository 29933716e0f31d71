// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_audit.cuh"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "engine/cuda_audit_rows.cuh"
#include "engine/cuda_layout.cuh"
#include "engine/error.hpp"
#include "gpu/check.hpp"

namespace dosa::engine {
namespace {

constexpr int64_t kMostChunkBytes = int64_t{4} << 30;  // bounds and scores of some rows
constexpr int64_t kMostRows = 8192;

template <class T>
class Memory {
 public:
  explicit Memory(int64_t count) {
    const size_t bytes = std::max<size_t>(static_cast<size_t>(count) * sizeof(T), 1);
    DOSA_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), bytes));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  [[nodiscard]] T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

int64_t workspace_for(const dosa_problem& problem, dosa_options options, int mode) {
  options.mode = mode;
  CudaBuffers unused{};
  return static_cast<int64_t>(
      place_cuda_buffers(make_cuda_shape(problem, options), nullptr, unused));
}

/// Rows whose bounds and scores fit, whole blocks of 64.
int64_t chunk_rows(const dosa_problem& problem) {
  size_t free = 0;
  size_t total = 0;
  DOSA_CUDA(cudaMemGetInfo(&free, &total));
  const int64_t room = std::min<int64_t>(kMostChunkBytes, static_cast<int64_t>(free) / 2);
  const int64_t row_bytes = std::max<int64_t>(problem.num_keys, 1) *
                            static_cast<int64_t>(sizeof(KeyBound) + sizeof(float));
  const int64_t rows = room / row_bytes / gpu::kBlockRows * gpu::kBlockRows;
  const int64_t blocks = (problem.num_queries + gpu::kBlockRows - 1) / gpu::kBlockRows;
  const int64_t most = std::clamp<int64_t>(blocks * gpu::kBlockRows, gpu::kBlockRows, kMostRows);
  return std::clamp<int64_t>(rows, gpu::kBlockRows, most);
}

/// Adds a row's parts, the answer of which has `expected` ids.
void add_row(const AuditPart* parts, int64_t row, int topk, bool answers,
             dosa_cuda_verification& report) {
  int64_t visible = 0;
  int64_t better = 0;
  bool wrong = false;
  for (int i = 0; i < kAuditParts; ++i) {
    const AuditPart& part = parts[i];
    visible += part.visible;
    better += part.better;
    wrong = wrong || part.wrong != 0;
    report.bounded += part.bounded;
    report.rejected += part.rejected;
    report.violations += part.violations;
    if (part.margin_key >= 0 && part.margin < report.min_margin) {
      report.min_margin = part.margin;
      report.witness_row = row;
      report.witness_key = part.margin_key;
      report.witness_bound = part.bound;
      report.witness_score = part.score;
    }
    if (part.used_key >= 0 && (report.used_row < 0 || part.used > report.most_used)) {
      report.most_used = part.used;
      report.used_row = row;
      report.used_key = part.used_key;
    }
  }
  report.visible += visible;
  if (answers && (wrong || better != std::min<int64_t>(visible, topk))) {
    ++report.rows_different;
    if (report.first_different < 0) report.first_different = row;
  }
}

void clear_report(const dosa_problem& problem, dosa_cuda_verification& report) {
  report = {};
  report.struct_size = sizeof report;
  report.rows = problem.num_queries;
  report.first_different = -1;
  report.min_margin = std::numeric_limits<double>::infinity();
  report.witness_row = report.witness_key = -1;
  report.used_row = report.used_key = -1;
}

/// The answers of the call that is judged: absolute ids, ascending, and their scores.
void make_answers(const dosa_problem& problem, dosa_options options, int32_t* ids, float* scores,
                  void* workspace) {
  options.index_form = DOSA_INDEX_ABSOLUTE;
  options.order = DOSA_ORDER_ID;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids;
  output.indices_stride = problem.topk;
  output.scores = scores;
  output.scores_stride = problem.topk;
  cuda_topk(problem, options, output, workspace, nullptr);
}

}  // namespace

void cuda_audit(const dosa_problem& problem, const dosa_options& options, bool answers,
                dosa_cuda_verification& report, AuditHook hook) {
  const auto begin = std::chrono::steady_clock::now();
  clear_report(problem, report);
  const int64_t cells = answers ? problem.num_queries * problem.topk : 0;
  const int64_t rows_at_once = chunk_rows(problem);
  const Memory<uint8_t> workspace(std::max({workspace_for(problem, options, options.mode),
                                            workspace_for(problem, options, DOSA_MODE_DOSA),
                                            workspace_for(problem, options, DOSA_MODE_FULL)}));
  const Memory<int32_t> ids(cells);
  const Memory<float> id_scores(cells);
  const Memory<KeyBound> bounds(rows_at_once * problem.num_keys);
  const Memory<float> scores(rows_at_once * problem.num_keys);
  const Memory<AuditPart> parts(rows_at_once * kAuditParts);
  std::vector<AuditPart> host(static_cast<size_t>(rows_at_once) * kAuditParts);
  if (answers) make_answers(problem, options, ids.get(), id_scores.get(), workspace.get());
  for (int64_t first = 0; first < problem.num_queries; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, problem.num_queries - first);
    cuda_bounds(problem, options, first, first + rows, bounds.get(), problem.num_keys,
                workspace.get(), nullptr);
    if (hook.bounds != nullptr) {
      hook.bounds(hook.user, bounds.get(), first, rows, problem.num_keys, nullptr);
    }
    cuda_scores(problem, options, first, first + rows, scores.get(), problem.num_keys,
                workspace.get(), nullptr);
    AuditRows params{};
    params.bounds = bounds.get();
    params.bounds_stride = problem.num_keys;
    params.scores = scores.get();
    params.scores_stride = problem.num_keys;
    params.k_start = problem.k_start == nullptr ? nullptr : problem.k_start + first;
    params.k_end = problem.k_end == nullptr ? nullptr : problem.k_end + first;
    params.num_keys = static_cast<int>(problem.num_keys);
    if (answers) {
      params.ids = ids.get() + first * problem.topk;
      params.id_scores = id_scores.get() + first * problem.topk;
    }
    params.topk = problem.topk;
    params.forced_first = options.forced_first;
    params.forced_last = options.forced_last;
    params.rows = static_cast<int>(rows);
    DOSA_CUDA(launch_audit_rows(params, parts.get(), nullptr));
    DOSA_CUDA(cudaMemcpy(host.data(), parts.get(),
                         static_cast<size_t>(rows) * kAuditParts * sizeof(AuditPart),
                         cudaMemcpyDeviceToHost));
    for (int64_t row = 0; row < rows; ++row) {
      add_row(host.data() + row * kAuditParts, first + row, problem.topk, answers, report);
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  report.seconds = taken.count();
}

}  // namespace dosa::engine
