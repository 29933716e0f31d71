/* SPDX-License-Identifier: Apache-2.0
 *
 * The device interface of DoSA: the calls of dosa.h on a GPU, sm_80 or later.
 *
 * The structures are those of dosa.h; their data pointers are DEVICE pointers, the structures
 * themselves lie in host memory and are read before the call returns.
 *
 * Model    On sm_90 scores are those of the `sm90` model (docs/numerics.md): bit for bit what the
 *          FP8 prefill kernel of today's serving engines computes. Elsewhere, or where
 *          options.score_model asks for it, those of `mma_f16` (docs/numerics-mma.md). Same bytes
 *          for every mode and repetition of one model. Decode steps need sm_90.
 * Stream   Work is enqueued on `stream` (a cudaStream_t; null is the default stream). Nothing is
 *          allocated, nothing is read back, nothing waits; a call may be captured in a CUDA graph.
 * Checks   Shapes, strides, alignment, options and the workspace's size are checked before anything
 *          is enqueued; dosa_last_error() names the argument. Windows are data and not read here.
 * Ranges   H 1 .. 128, D 32, 64 or 128 (tuned; shorter heads are read with zeros behind them, which
 *          changes no bit), K 1 .. DOSA_CUDA_MAX_TOPK (2,560 on sm_86, 89, 120),
 *          N .. 2^31 - 1; q, k aligned to 16 bytes, k_stride a multiple of 16.
 * Options  All but threads, progress and allowance_groups, which are not used. Refused with
 *          DOSA_UNSUPPORTED: allowance grouped (one norm per key is kept), aggregate two and
 *          absolute (one aggregate has room), statistics seeds. A fixed threshold is that of
 *          screening; records are still reduced on the way, or they would not fit.
 * Results  output->rows and output->stats, where not null, are device memory too and are filled on
 *          the stream, struct_size included. On the device mean_slack and seconds are 0; what a
 *          group of rows lists is counted for each of its rows; a fallback is a row that was scored
 *          again because records were lost, an estimate failed or nothing could be proven.
 */
#ifndef DOSA_DOSA_CUDA_H
#define DOSA_DOSA_CUDA_H

#include "dosa/dosa.h"
#include "dosa/dosa_decode.h"
#include "dosa/dosa_merge.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DOSA_CUDA_MAX_TOPK = 4096, /* K: 1 .. 4096 */
  DOSA_CUDA_MAX_LISTS = 256  /* lists that dosa_cuda_merge_topk takes */
};

/* As dosa_options_init, with the device's workspace limit of 2 GiB. */
DOSA_API dosa_status dosa_cuda_options_init(dosa_options* options, size_t struct_size);

/* Bytes that dosa_cuda_topk needs for this shape and these options (pointers are ignored). */
DOSA_API dosa_status dosa_cuda_workspace_bytes(const dosa_problem* problem,
                                               const dosa_options* options, size_t* bytes);

/* The exact Top-K of every row. workspace: device memory aligned to 256 bytes. */
DOSA_API dosa_status dosa_cuda_topk(const dosa_problem* problem, const dosa_options* options,
                                    const dosa_output* output, void* workspace,
                                    size_t workspace_bytes, void* stream);

/* Every key's score for rows [row_begin, row_end), whatever their windows.
 * scores: device memory [row_end - row_begin, N], row stride scores_stride >= N.
 * workspace: as for dosa_cuda_topk with DOSA_MODE_FULL. */
DOSA_API dosa_status dosa_cuda_scores(const dosa_problem* problem, const dosa_options* options,
                                      int64_t row_begin, int64_t row_end, float* scores,
                                      int64_t scores_stride, void* workspace,
                                      size_t workspace_bytes, void* stream);

/* What the last dosa_cuda_topk on this workspace did; `counters` is host memory.
 * Waits for the stream: for tests and measurements, not for capture. */
typedef struct dosa_cuda_counters {
  size_t struct_size; /* sizeof(dosa_cuda_counters), set by the caller */
  int64_t refined;    /* (group, key) pairs listed for refinement */
  int64_t
      recovered_rows; /* rows scored again because records were lost or nothing could be proven */
} dosa_cuda_counters;
DOSA_API dosa_status dosa_cuda_read_counters(const void* workspace, dosa_cuda_counters* counters,
                                             void* stream);

typedef struct dosa_cuda_verification {
  size_t struct_size; /* sizeof(dosa_cuda_verification), set by the caller */
  int64_t rows;
  int64_t rows_different;  /* rows whose answer is not the best keys by score, lower ids first */
  int64_t first_different; /* the first such row, or -1 */
  int64_t visible;         /* (row, key) pairs, the key in the row's window */
  int64_t bounded;         /* of them with a bound; the others are never rejected */
  int64_t rejected;        /* bounded pairs that the row's K-th score rejects */
  int64_t violations; /* bounded pairs that a threshold equal to their own score would reject */
  double min_margin;  /* smallest distance of a bound U to where its score s would reject it;
                         below U - s by about 2^-21 |s|; +Inf where none is bounded */
  int64_t witness_row, witness_key; /* where it was seen, or -1 */
  float witness_bound, witness_score;
  float most_used; /* largest share of a pair's allowance (E |k| + C) k_scale that its score needed;
                      above 1 only where the bound is below the score */
  int64_t used_row, used_key; /* where it was seen, or -1 */
  double seconds;
} dosa_cuda_verification;

/* The audit: the bound of every visible pair, computed as screening does (where a call chooses
 * between widths, with the widest), against its score, and the answers of dosa_cuda_topk under
 * these options, ids and score bits, against every key's score. Returns DOSA_CERTIFICATE when a
 * bound was violated or an answer is wrong; the report is filled either way. It allocates device
 * memory (up to 4 GiB more than the call), works on the default stream and waits. Forced keys have
 * no bound. */
DOSA_API dosa_status dosa_cuda_verify(const dosa_problem* problem, const dosa_options* options,
                                      dosa_cuda_verification* report);

/* Decode steps over a paged cache: the calls of dosa_decode.h, on `stream`.
 *
 * Pointers   Those inside the structures, `cache->pages` among them, are device pointers; the
 *            structures themselves, `*cache` too, lie in host memory and are read before the call
 *            returns. Lengths, tables, witness states and slots are data: the device alone reads
 *            them, so a captured call may be replayed with others. Nothing of them can be refused:
 *            ids of a row whose table names no page of the cache are undefined, but no memory
 *            outside the cache is touched on their account.
 * Ranges     B 0 .. 2^24, next_n 1 .. DOSA_MAX_NEXT_N, H 1 .. 128, D = 128,
 *            K 1 .. DOSA_CUDA_MAX_TOPK; q aligned to 16 bytes, q_stride a multiple of 16. Pages of
 *            32 tokens and more are read fastest where they, too, begin at multiples of 16 bytes.
 * Options    mode (auto, base, full: base does not use the witnesses), threshold, index_form,
 *            order, forced_first, forced_last, workspace_limit; `threads` is ignored.
 * Witnesses  The layout of a state and its meaning are those of dosa_decode.h: states written by
 *            the host may be copied to the device and back. Ids and scores depend on the inputs
 *            alone; which tokens a state names behind the winners may depend on timing.
 * Scores     are those of the `sm90` model: a row is bit for bit that of dosa_cuda_topk on the
 *            gathered keys. */

/* Bytes that dosa_cuda_paged_topk needs (pointers but `cache` are ignored). */
DOSA_API dosa_status dosa_cuda_paged_workspace_bytes(const dosa_paged_problem* problem,
                                                     const dosa_options* options, size_t* bytes);

/* The exact Top-K of every row; output (dosa.h) with Q = B * next_n.
 * workspace: device memory aligned to 256 bytes, with any contents. */
DOSA_API dosa_status dosa_cuda_paged_topk(const dosa_paged_problem* problem,
                                          const dosa_options* options, const dosa_output* output,
                                          void* workspace, size_t workspace_bytes, void* stream);

/* The score of every token that a row sees: scores [B * next_n, max_context], row stride
 * scores_stride >= max_context, written up to the row's length. topk, options and witnesses of the
 * problem play no part; no workspace is needed. */
DOSA_API dosa_status dosa_cuda_paged_scores(const dosa_paged_problem* problem, float* scores,
                                            int64_t scores_stride, void* stream);

/* Pages -> contiguous keys. Keys past num_keys are not written. `threads` is ignored. */
DOSA_API dosa_status dosa_cuda_paged_gather(const dosa_paged_gather_problem* problem, void* stream);

/* New bf16 keys -> pages, bytes as dosa_paged_insert writes them. Slots outside the cache are
 * skipped. `threads` is ignored. */
DOSA_API dosa_status dosa_cuda_paged_insert(const dosa_paged_insert_problem* problem, void* stream);

/* dosa_merge_topk (dosa_merge.h) on `stream`, on every card: the same order, and a key that occurs
 * more than once in a row counts once, with its best score. One kernel, no workspace.
 *
 * Pointers   scores, ids, offsets and the outputs are device pointers. Offsets are data: a part
 *            that ends before it begins is empty, but they have to stay inside the arrays.
 * Ranges     L 0 .. DOSA_CUDA_MAX_LISTS (parts of parts can be merged first), K 1 ..
 *            DOSA_CUDA_MAX_TOPK (2,560 on sm_86, 89, 120); `threads` is ignored. */
DOSA_API dosa_status dosa_cuda_merge_topk(const dosa_candidates* candidates,
                                          const dosa_output* output, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* DOSA_DOSA_CUDA_H */
