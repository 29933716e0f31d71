// SPDX-License-Identifier: Apache-2.0
// The distributions of docs/cases.md on the device, in every mode, at full size: scores are what
// the input says (DIAL), so the answer is a stable sort of them and no engine is its own judge.
//
// Exit code 77: no sm_90 device (skipped).
#include <cstring>

#include "gpu/reference.hpp"
#include "oracle/distributions.hpp"

namespace dosa::testing {
namespace {

/// Every mode, `repeats` times: the same ids and scores as the sorted values, bit for bit.
void check_distribution(const oracle::Distribution& input) {
  const auto rows = static_cast<int>(input.rows);
  const DeviceInputs inputs(make_dial(rows, 32, input.values, input.sign), input.topk);
  std::vector<float> scores = input.values;
  for (float& score : scores) score *= input.sign;
  const auto keys = static_cast<int>(scores.size());
  const std::vector<int32_t> wanted = reference_row(scores.data(), 0, keys, keys, input.topk);
  for (const int mode : {DOSA_MODE_AUTO, DOSA_MODE_BASE, DOSA_MODE_FULL, DOSA_MODE_DOSA}) {
    int wrong = 0;
    for (int repeat = 0; repeat < input.repeats; ++repeat) {
      const Answer answer = run_topk(inputs, default_options(mode, 0));
      if (answer.ids.empty()) ++wrong;
      for (size_t i = 0; i < answer.ids.size(); ++i) {
        const int32_t id = wanted[i % wanted.size()];
        const bool same_score = id < 0 || answer.scores[i] == scores[static_cast<size_t>(id)];
        if (answer.ids[i] != id || !same_score) ++wrong;
      }
    }
    expect(wrong == 0, input.name + " mode " + std::to_string(mode),
           std::to_string(wrong) + " wrong places of " + std::to_string(rows * input.topk));
  }
}

void check_all() {
  for (const auto& cases :
       {oracle::narrow_scores_in_long_rows(), oracle::populations_around_a_buffer(),
        oracle::winners_beside_one_coarse_bin(), oracle::narrow_range_at_the_buffer_edge(),
        oracle::most_in_one_half_precision_bucket(), oracle::one_band_at_any_magnitude(),
        oracle::last_mantissa_bits(), oracle::any_distribution(), oracle::copies_of_each_score(),
        oracle::scores_rounded_to_bfloat16()}) {
    const int before = failures;
    for (const oracle::Distribution& input : cases) check_distribution(input);
    std::printf("%-28s and alike: %zu inputs, %d failures\n", cases.front().name.c_str(),
                cases.size(), failures - before);
  }
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"cases", check_all}}, argc, argv);
}
