/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the best two of four keys with scores 1, 2, 0.5 and 3, and provokes an error. */
#include <dosa/dosa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kHeadDim = 16, kKeys = 4, kTopk = 2 };

int main(void) {
  static const uint8_t first_codes[kKeys] = {0x38, 0x40, 0x30, 0x44}; /* e4m3 1, 2, 0.5, 3 */
  uint8_t query[kHeadDim] = {0x38};
  uint8_t keys[kKeys * kHeadDim] = {0};
  float scales[kKeys] = {1, 1, 1, 1};
  float weight = 1;
  int32_t ids[kTopk] = {-2, -2};
  float scores[kTopk] = {0, 0};
  dosa_options options;
  dosa_problem problem;
  dosa_output output;
  size_t bytes = 0;
  void* workspace;
  dosa_status status;

  for (int i = 0; i < kKeys; ++i) keys[i * kHeadDim] = first_codes[i];
  if (dosa_options_init(&options, sizeof options) != DOSA_OK) return 1;

  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.num_queries = 1;
  problem.num_keys = kKeys;
  problem.num_heads = 1;
  problem.head_dim = kHeadDim;
  problem.topk = kTopk;
  problem.q = query;
  problem.q_stride = kHeadDim;
  problem.k = keys;
  problem.k_stride = kHeadDim;
  problem.k_scale = scales;
  problem.weights = &weight;
  problem.weights_stride = 1;

  memset(&output, 0, sizeof output);
  output.struct_size = sizeof output;
  output.indices = ids;
  output.indices_stride = kTopk;
  output.scores = scores;
  output.scores_stride = kTopk;

  if (dosa_workspace_bytes(&problem, &options, &bytes) != DOSA_OK) {
    fprintf(stderr, "%s\n", dosa_last_error());
    return 1;
  }
  workspace = malloc(bytes > 0 ? bytes : 1);
  status = dosa_topk(&problem, &options, &output, workspace, bytes);
  if (status != DOSA_OK) {
    fprintf(stderr, "%s: %s\n", dosa_status_text(status), dosa_last_error());
    return 1;
  }
  printf("dosa %s: ids %d %d, scores %g %g\n", dosa_version(), (int)ids[0], (int)ids[1], scores[0],
         scores[1]);
  if (ids[0] != 1 || ids[1] != 3 || scores[0] != 2.0F || scores[1] != 3.0F) return 1;

  problem.topk = 0;
  status = dosa_topk(&problem, &options, &output, workspace, bytes);
  free(workspace);
  return status == DOSA_INVALID_ARGUMENT && dosa_last_error()[0] != '\0' ? 0 : 1;
}
