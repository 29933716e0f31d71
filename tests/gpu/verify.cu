// SPDX-License-Identifier: Apache-2.0
// The audit of the device engine: it finds nothing where nothing is wrong, and it finds a bound, an
// id or a score that was tampered with. Exit code 77: no sm_90 device (skipped).
#include <cstdio>
#include <numeric>
#include <string>

#include "engine/cuda_audit.cuh"
#include "engine/cuda_audit_rows.cuh"
#include "gpu/inputs.hpp"
#include "gpu/report.hpp"

namespace dosa::testing {
namespace {

dosa_options options_for(int mode, int heads) {
  dosa_options options;
  dosa_cuda_options_init(&options, sizeof options);
  options.mode = mode;
  options.heads = heads;
  return options;
}

std::string text(const dosa_cuda_verification& report) {
  char line[400];
  std::snprintf(
      line, sizeof line,
      "%lld rows, %lld different (first %lld), %lld visible, %lld bounded, %lld rejected, "
      "%lld violations, margin %g at (%lld, %lld) bound %g score %g, used %g",
      static_cast<long long>(report.rows), static_cast<long long>(report.rows_different),
      static_cast<long long>(report.first_different), static_cast<long long>(report.visible),
      static_cast<long long>(report.bounded), static_cast<long long>(report.rejected),
      static_cast<long long>(report.violations), report.min_margin,
      static_cast<long long>(report.witness_row), static_cast<long long>(report.witness_key),
      static_cast<double>(report.witness_bound), static_cast<double>(report.witness_score),
      static_cast<double>(report.most_used));
  return line;
}

dosa_cuda_verification audit(const DeviceInputs& inputs, const dosa_options& options) {
  dosa_cuda_verification report{};
  report.struct_size = sizeof report;
  const dosa_status status = dosa_cuda_verify(&inputs.problem, &options, &report);
  if (status != DOSA_OK) std::printf("verify: %s\n", dosa_last_error());
  return report;
}

int64_t visible_pairs(const HostInputs& host) {
  int64_t pairs = 0;
  for (int row = 0; row < host.queries; ++row) {
    const int start = std::clamp(host.k_start[row], 0, host.keys);
    const int end = std::clamp(host.k_end[row], 0, host.keys);
    pairs += std::max(end - start, 0);
  }
  return pairs;
}

void check_clean(const std::string& name, const HostInputs& host, int topk, bool prunes) {
  const DeviceInputs inputs(host, topk);
  for (const int heads : {6, 14, 22, 30}) {
    for (const int mode : {DOSA_MODE_DOSA, DOSA_MODE_AUTO, DOSA_MODE_BASE}) {
      if (mode != DOSA_MODE_DOSA && heads != 14) continue;
      const dosa_cuda_verification report = audit(inputs, options_for(mode, heads));
      const std::string label = name + ", r = " + std::to_string(heads);
      expect(report.rows == host.queries && report.visible == visible_pairs(host), label,
             text(report));
      expect(report.violations == 0 && report.rows_different == 0, label, text(report));
      expect(!prunes || (report.bounded > 0 && report.rejected > 0), label, text(report));
      expect(!prunes || (report.min_margin >= 0 && report.most_used <= 1), label, text(report));
    }
  }
}

/// Forced keys rank as +Inf; nothing is asked about their bounds.
void check_forced() {
  HostInputs host = make_real(80, 9000, 32, 14);
  make_ragged(host, 15);
  const DeviceInputs inputs(host, 100);
  for (const int last : {0, 30, 500}) {
    dosa_options options = options_for(DOSA_MODE_DOSA, 14);
    options.forced_first = 4;
    options.forced_last = last;
    const dosa_cuda_verification report = audit(inputs, options);
    expect(report.visible == visible_pairs(host) && report.bounded < report.visible, "forced",
           text(report));
    expect(report.violations == 0 && report.rows_different == 0, "forced", text(report));
  }
}

constexpr int64_t kBrokenRow = 70;
constexpr int64_t kBrokenKey = 12345;
constexpr float kBrokenBound = -1e30f;

struct Breaker {
  int done = 0;

  static void lower(void* user, engine::KeyBound* bounds, int64_t first_row, int64_t rows,
                    int64_t stride, cudaStream_t stream) {
    if (kBrokenRow < first_row || kBrokenRow >= first_row + rows) return;
    engine::KeyBound* const at = bounds + (kBrokenRow - first_row) * stride + kBrokenKey;
    DOSA_CUDA(
        cudaMemcpyAsync(&at->bound, &kBrokenBound, sizeof(float), cudaMemcpyHostToDevice, stream));
    ++static_cast<Breaker*>(user)->done;
  }
};

/// A bound that was lowered is found, where it is.
void check_broken_bound() {
  const HostInputs host = make_real(130, 20000, 32, 5);
  const DeviceInputs inputs(host, 64);
  dosa_cuda_verification report{};
  Breaker breaker;
  engine::cuda_audit(inputs.problem, options_for(DOSA_MODE_DOSA, 14), true, report,
                     {&Breaker::lower, &breaker});
  expect(breaker.done == 1, "broken bound", "the hook saw its row " + std::to_string(breaker.done));
  expect(report.violations == 1 && report.witness_row == kBrokenRow &&
             report.witness_key == kBrokenKey && report.witness_bound == kBrokenBound,
         "broken bound", text(report));
  expect(report.rows_different == 0, "broken bound", text(report));
}

/// The rows' judgement itself, on scores 0 .. 999 of which the best 10 are asked for.
struct Judged {
  static constexpr int kKeys = 1000;
  static constexpr int kTopk = 10;
  std::vector<engine::KeyBound> bounds;
  std::vector<float> scores;
  std::vector<int32_t> ids;
  std::vector<float> id_scores;
  int forced_first = 0;

  Judged() {
    for (int key = 0; key < kKeys; ++key) {
      scores.push_back(static_cast<float>(key / 2));  // pairs of equals
      bounds.push_back({scores.back() + 1.0f, 2.0f});
    }
    for (int id = kKeys - kTopk; id < kKeys; ++id) {
      ids.push_back(id);
      id_scores.push_back(scores[id]);
    }
  }

  [[nodiscard]] engine::AuditPart judge() const {
    const DeviceArray<engine::KeyBound> device_bounds(bounds);
    const DeviceArray<float> device_scores(scores);
    const DeviceArray<int32_t> device_ids(ids);
    const DeviceArray<float> device_id_scores(id_scores);
    const DeviceArray<engine::AuditPart> parts(engine::kAuditParts);
    engine::AuditRows params{};
    params.bounds = device_bounds.get();
    params.bounds_stride = kKeys;
    params.scores = device_scores.get();
    params.scores_stride = kKeys;
    params.num_keys = kKeys;
    params.ids = device_ids.get();
    params.id_scores = device_id_scores.get();
    params.topk = kTopk;
    params.forced_first = forced_first;
    params.rows = 1;
    DOSA_CUDA(engine::launch_audit_rows(params, parts.get(), nullptr));
    engine::AuditPart sum{};
    for (const engine::AuditPart& part : parts.host()) {
      sum.visible += part.visible;
      sum.bounded += part.bounded;
      sum.rejected += part.rejected;
      sum.violations += part.violations;
      sum.better += part.better;
      sum.wrong |= part.wrong;
    }
    return sum;
  }
};

void check_judgement() {
  const auto right = [](const Judged& judged) {
    const engine::AuditPart part = judged.judge();
    return part.wrong == 0 && part.better == Judged::kTopk;
  };
  Judged good;
  expect(right(good), "judgement", "a right answer is called wrong");
  const engine::AuditPart counts = good.judge();
  // A bound of s + 1 is below the threshold 495 for s < 494: keys 0 .. 987.
  expect(counts.visible == 1000 && counts.bounded == 1000 && counts.rejected == 988 &&
             counts.violations == 0,
         "judgement", "counts");
  Judged worse;  // 988 has the score of 989 and ranks higher, neither is as good as 990
  worse.ids[0] = 988;
  worse.id_scores[0] = worse.scores[988];
  expect(!right(worse), "judgement", "a worse key passes");
  Judged tie;  // of the two equals 990 and 991 only the lower may be chosen alone
  tie.ids.assign({989, 991, 992, 993, 994, 995, 996, 997, 998, 999});
  tie.id_scores.clear();
  for (const int id : tie.ids) tie.id_scores.push_back(tie.scores[id]);
  expect(!right(tie), "judgement", "a higher id of equals passes");
  Judged twice;
  twice.ids[0] = twice.ids[1];
  expect(!right(twice), "judgement", "an id twice passes");
  Judged order;
  std::swap(order.ids[0], order.ids[1]);
  std::swap(order.id_scores[0], order.id_scores[1]);
  expect(!right(order), "judgement", "a wrong order passes");
  Judged bits;
  bits.id_scores[4] = std::nextafter(bits.id_scores[4], 1e9f);
  expect(!right(bits), "judgement", "a score that is a bit off passes");
  Judged zero;  // the sign of zero is no part of a score's order
  zero.scores.assign(Judged::kKeys, -0.0f);
  zero.ids.resize(Judged::kTopk);
  std::iota(zero.ids.begin(), zero.ids.end(), 0);
  zero.id_scores.assign(Judged::kTopk, 0.0f);
  expect(right(zero), "judgement", "zeros of either sign differ");
  Judged forced;  // the first two keys, whatever they score
  forced.ids[0] = 0;
  forced.ids[1] = 1;
  forced.id_scores[0] = forced.id_scores[1] = std::numeric_limits<float>::infinity();
  expect(!right(forced), "judgement", "keys that are not forced pass as forced");
  forced.forced_first = 2;
  expect(right(forced), "judgement", "forced keys are called wrong");
  expect(forced.judge().bounded == 998, "judgement", "forced keys have bounds");
  Judged outside;
  outside.ids[9] = Judged::kKeys;
  expect(!right(outside), "judgement", "an id outside passes");
  Judged missing;
  missing.ids[9] = -1;
  expect(!right(missing), "judgement", "a missing id passes");
  Judged low;
  low.bounds[3].bound = std::nextafter(low.scores[3], -1e9f) * 0.99f;
  expect(low.judge().violations == 1, "judgement", "a low bound passes");
  Judged nan;
  nan.bounds[3].bound = std::numeric_limits<float>::quiet_NaN();
  expect(nan.judge().violations == 0 && nan.judge().bounded == 999, "judgement", "NaN claims");
}

void check_refusals() {
  const HostInputs host = make_real(2, 300, 32, 1);
  DeviceInputs inputs(host, 8);
  dosa_cuda_verification report{};
  const dosa_options options = options_for(DOSA_MODE_DOSA, 0);
  expect(dosa_cuda_verify(&inputs.problem, &options, &report) == DOSA_INVALID_ARGUMENT, "refusals",
         "a report without its size");
  report.struct_size = sizeof report;
  inputs.problem.k_scale = nullptr;
  expect(dosa_cuda_verify(&inputs.problem, &options, &report) == DOSA_INVALID_ARGUMENT &&
             std::string(dosa_last_error()).find("k_scale") != std::string::npos,
         "refusals", dosa_last_error());
}

void check_all() {
  check_judgement();
  check_broken_bound();
  check_forced();
  check_refusals();
  HostInputs causal = make_real(200, 30000, 32, 2);
  make_causal(causal);
  check_clean("real, causal", causal, 256, true);
  HostInputs ragged = make_real(150, 9001, 64, 3);
  make_ragged(ragged, 4);
  check_clean("real, ragged", ragged, 40, true);
  check_clean("integers", make_int(70, 12345, 32, 6), 100, true);
  check_clean("5 heads", make_real(65, 5000, 5, 7), 16, true);
  check_clean("128 heads", make_real(65, 5000, 128, 8), 16, false);
  check_clean("plateau", make_dial(3, 32, std::vector<float>(20000, 1.0f), 1.0f), 2048, false);
  check_clean("no keys", make_shape(3, 0, 32), 4, false);
  HostInputs odd = make_real(70, 20000, 32, 12);
  const float scales[] = {0.0f, -1.0f, 1e-40f, 1.0f / 0.0f, 0.0f / 0.0f, -1.0f / 0.0f};
  for (int i = 0; i < odd.keys; i += 97) odd.k_scale[i] = scales[i / 97 % 6];
  odd.weights[3 * 32 + 1] = scales[4];
  odd.q[7 * 32 * kDim + 9] = 0xff;
  check_clean("odd values", odd, 512, true);
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"verify", check_all}}, argc, argv);
}
