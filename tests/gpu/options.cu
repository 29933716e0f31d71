// SPDX-License-Identifier: Apache-2.0
// Options of the device engine: forced keys, a fixed threshold, the rules of the certificate, and
// short heads. Exit code 77: no sm_90 device (skipped).
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gpu/reference.hpp"
#include "numeric/sm90_dot.hpp"

namespace dosa::testing {
namespace {

using Change = std::function<void(dosa_options&)>;

/// Compares ids and scores under changed options with the contract's answer.
void check(const std::string& name, const HostInputs& host, int topk, const std::vector<int>& modes,
           const Change& change) {
  const DeviceInputs inputs(host, topk);
  const std::vector<float> scores = dense_scores(inputs);
  for (const int mode : modes) {
    dosa_options options = default_options(mode, 0);
    change(options);
    const Answer answer = run_topk(inputs, options);
    int wrong = 0;
    for (int row = 0; row < host.queries && !answer.ids.empty(); ++row) {
      const auto first = scores.begin() + static_cast<int64_t>(row) * host.keys;
      std::vector<float> line(first, first + host.keys);
      const int start = std::clamp(host.k_start[row], 0, host.keys);
      const int end = std::max(start, std::clamp(host.k_end[row], 0, host.keys));
      const float infinity = std::numeric_limits<float>::infinity();
      const int front = std::min(options.forced_first, end - start);
      const int back = std::min(options.forced_last, end - start - front);
      std::fill_n(line.begin() + start, front, infinity);
      std::fill_n(line.begin() + end - back, back, infinity);
      const std::vector<int32_t> wanted =
          reference_row(line.data(), host.k_start[row], host.k_end[row], host.keys, topk);
      const int32_t* const ids = answer.ids.data() + static_cast<size_t>(row) * topk;
      const float* const got = answer.scores.data() + static_cast<size_t>(row) * topk;
      bool same = std::equal(wanted.begin(), wanted.end(), ids);
      for (int i = 0; same && i < topk && ids[i] >= 0; ++i) {
        same = numeric::order_code(got[i]) == numeric::order_code(line[ids[i]]);
      }
      wrong += same ? 0 : 1;
    }
    const std::string label = name + " mode " + std::to_string(mode);
    expect(!answer.ids.empty() && wrong == 0, label, std::to_string(wrong) + " wrong rows");
    std::printf("%-40s refined %lld recovered %lld %s\n", label.c_str(),
                static_cast<long long>(answer.counters.refined),
                static_cast<long long>(answer.counters.recovered_rows),
                wrong == 0 ? "ok" : "WRONG");
  }
}

const std::vector<int> kModes = {DOSA_MODE_BASE, DOSA_MODE_FULL, DOSA_MODE_DOSA};

void check_forced() {
  const HostInputs real = make_real(70, 40000, 32, 40);
  for (const int first : {0, 1, 4, 300}) {
    for (const int last : {0, 64, 700}) {
      check("forced " + std::to_string(first) + " + " + std::to_string(last), real, 512, kModes,
            [&](dosa_options& options) {
              options.forced_first = first;
              options.forced_last = last;
            });
    }
  }
  HostInputs ragged = make_int(140, 30000, 64, 41);
  make_ragged(ragged, 42);
  const Change both = [](dosa_options& options) {
    options.forced_first = 200;
    options.forced_last = 200;
  };
  check("forced ragged", ragged, 256, kModes, both);
  check("forced all of K", ragged, 100, kModes, both);
  HostInputs odd = make_real(70, 30000, 32, 43);
  for (int i = 0; i < odd.keys; i += 5) odd.k_scale[i] = std::numeric_limits<float>::infinity();
  odd.weights[3 * 32 + 1] = std::numeric_limits<float>::quiet_NaN();
  check("forced among infinite scores", odd, 512, kModes, both);
}

void check_rules() {
  const HostInputs host = make_real(70, 60000, 32, 44);
  const std::vector<int> screened = {DOSA_MODE_DOSA};
  const auto rule = [&](const char* name, const Change& change) {
    check(name, host, 256, screened, change);
  };
  rule("fixed threshold", [](dosa_options& o) { o.threshold = DOSA_THRESHOLD_FIXED; });
  rule("strength", [](dosa_options& o) { o.retain = DOSA_RETAIN_STRENGTH; });
  rule("no projection", [](dosa_options& o) { o.projection = 0, o.heads = 6; });
  rule("triangle", [](dosa_options& o) { o.allowance = DOSA_ALLOWANCE_TRIANGLE, o.heads = 6; });
  rule("joint", [](dosa_options& o) { o.allowance = DOSA_ALLOWANCE_JOINT, o.heads = 6; });
  rule("aggregate all", [](dosa_options& o) { o.aggregate = DOSA_AGGREGATE_ALL; });
  rule("aggregate none", [](dosa_options& o) { o.aggregate = DOSA_AGGREGATE_NONE; });
  rule("random statistics", [](dosa_options& o) { o.statistics = DOSA_STATISTICS_RANDOM; });
}

/// Statistics in device memory: what must hold of them whatever was pruned.
void check_statistics(const std::string& name, const HostInputs& host, int mode) {
  const int topk = 256;
  const DeviceInputs inputs(host, topk);
  const dosa_options options = default_options(mode, 14);
  size_t bytes = 0;
  dosa_cuda_workspace_bytes(&inputs.problem, &options, &bytes);
  const DeviceArray<uint8_t> workspace(bytes);
  const size_t count = static_cast<size_t>(host.queries);
  const DeviceArray<int32_t> ids(count * topk);
  const DeviceArray<float> scores(count * topk);
  const DeviceArray<dosa_row_stats> rows(count);
  const DeviceArray<dosa_stats> sums(1);
  workspace.poison();
  rows.poison();
  sums.poison();
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.get();
  output.indices_stride = topk;
  output.scores = scores.get();
  output.scores_stride = topk;
  output.rows = rows.get();
  output.stats = sums.get();
  const dosa_status status =
      dosa_cuda_topk(&inputs.problem, &options, &output, workspace.get(), bytes, nullptr);
  expect(status == DOSA_OK, name, dosa_last_error());
  DOSA_CUDA(cudaDeviceSynchronize());
  const std::vector<dosa_row_stats> got = rows.host();
  const std::vector<float> best = scores.host();
  dosa_stats total{};
  int wrong = 0;
  for (size_t row = 0; row < count; ++row) {
    const dosa_row_stats& stats = got[row];
    const int start = std::clamp(host.k_start[row], 0, host.keys);
    const int visible = std::max(0, std::clamp(host.k_end[row], 0, host.keys) - start);
    const auto line = best.begin() + static_cast<int64_t>(row * topk);
    float kth = -std::numeric_limits<float>::infinity();
    if (visible >= topk) kth = *std::min_element(line, line + topk);
    const bool all = mode != DOSA_MODE_DOSA;
    bool fine = stats.visible == visible && stats.kth_score == kth;
    fine = fine && stats.screened <= visible && stats.screened >= 0 && stats.fallback <= 1;
    fine = fine && (!all || (stats.screened == 0 && stats.fully_scored >= visible));
    fine = fine && (stats.screened == 0 || stats.heads == 14);
    fine = fine && (mode == DOSA_MODE_BASE || stats.records >= std::min(visible, topk) ||
                    stats.fallback == 1);
    fine = fine && (stats.fallback == 1 || !(stats.last_threshold > kth));
    wrong += fine ? 0 : 1;
    total.visible += stats.visible;
    total.screened += stats.screened;
    total.fully_scored += stats.fully_scored;
  }
  const dosa_stats sum = sums.host()[0];
  const bool same = sum.rows == host.queries && sum.visible == total.visible &&
                    sum.screened == total.screened && sum.fully_scored == total.fully_scored &&
                    sum.struct_size == sizeof sum && (sum.screened > 0) == (mode == DOSA_MODE_DOSA);
  expect(wrong == 0 && same, name,
         std::to_string(wrong) + " wrong rows, sums " + (same ? "ok" : "wrong"));
  std::printf("%-40s visible %lld screened %lld scored %lld records %lld deficit %g %s\n",
              name.c_str(), static_cast<long long>(sum.visible),
              static_cast<long long>(sum.screened), static_cast<long long>(sum.fully_scored),
              static_cast<long long>(sum.records), sum.mean_deficit,
              wrong == 0 && same ? "ok" : "WRONG");
}

void check_all_statistics() {
  HostInputs host = make_real(140, 50000, 32, 60);
  for (const int mode : kModes) check_statistics("statistics", host, mode);
  make_ragged(host, 61);
  for (const int mode : kModes) check_statistics("statistics ragged", host, mode);
}

/// Short heads: the kernels read zeros behind them, and zero k-steps change no bit.
void check_short_heads() {
  for (const int dim : {32, 64}) {
    const std::string name = "D = " + std::to_string(dim);
    HostInputs host = with_dim(make_real(70, 30001, 32, 50), dim);
    make_ragged(host, 51);
    check(name, host, 512, kModes, [](dosa_options&) {});
    const HostInputs wide = with_dim(host, kDim);
    const std::vector<float> scores = dense_scores(DeviceInputs(host, 1));
    const std::vector<float> padded = dense_scores(DeviceInputs(wide, 1));
    expect(std::memcmp(scores.data(), padded.data(), scores.size() * sizeof(float)) == 0, name,
           "scores differ from those of rows padded with zeros");
    // One head of weight 1 and scales of 1: the score is the dot product's positive part.
    HostInputs single = with_dim(make_real(3, 2000, 1, 52), dim);
    std::fill(single.k_scale.begin(), single.k_scale.end(), 1.0f);
    std::fill(single.weights.begin(), single.weights.end(), 1.0f);
    const std::vector<float> dots = dense_scores(DeviceInputs(single, 1));
    int wrong = 0;
    for (int row = 0; row < single.queries; ++row) {
      for (int key = 0; key < single.keys; ++key) {
        const uint32_t bits = sm90_dot_bits(single.q.data() + row * dim,
                                            single.k.data() + static_cast<size_t>(key) * dim, dim);
        float dot = 0.0f;
        std::memcpy(&dot, &bits, sizeof dot);
        const float score = dots[static_cast<size_t>(row) * single.keys + key];
        wrong += numeric::order_code(std::max(dot, 0.0f)) == numeric::order_code(score) ? 0 : 1;
      }
    }
    expect(wrong == 0, name, std::to_string(wrong) + " scores differ from the model's");
    std::printf("%-40s model %s\n", name.c_str(), wrong == 0 ? "ok" : "WRONG");
  }
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"forced", check_forced},
                    {"rules", check_rules},
                    {"heads", check_short_heads},
                    {"counters", check_all_statistics}},
                   argc, argv);
}
