/* SPDX-License-Identifier: Apache-2.0
   A library for `dosa bench --peer` that answers with mode base and then forgets the first id of
   every row, so that a test knows how far it agrees. Three threads are more than it can do. */
#include <dosa/dosa.h>
#include <stdlib.h>

int dosa_bench_peer_topk(const dosa_problem* problem, int threads, int32_t* ids);

int dosa_bench_peer_topk(const dosa_problem* problem, int threads, int32_t* ids) {
  if (threads == 3) return 7;
  dosa_options options;
  dosa_options_init(&options, sizeof options);
  options.mode = DOSA_MODE_BASE;
  options.threads = threads;
  dosa_output output = {
      .struct_size = sizeof output, .indices = ids, .indices_stride = problem->topk};
  size_t bytes = 0;
  dosa_status status = dosa_workspace_bytes(problem, &options, &bytes);
  void* workspace = status == DOSA_OK ? malloc(bytes) : NULL;
  if (status == DOSA_OK) status = dosa_topk(problem, &options, &output, workspace, bytes);
  free(workspace);
  for (int64_t row = 0; row < problem->num_queries; ++row) ids[row * problem->topk] = -1;
  return (int)status;
}
