/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact Top-K of lists of scored keys: what parts of a context (ranks, devices, chunks) found,
 * made into the answer for the whole (E17, docs/math.md).
 *
 * Where every list holds the K best keys of its part with their scores, the merged answer is that
 * of dosa_topk on all keys, byte for byte. Lists may also be shorter than K, if what they leave out
 * is known to score below the K-th best of the whole.
 *
 * Order    That of dosa.h: higher score first, equal scores by lower id, -0 equal to +0, NaN last.
 * Repeats  A key that occurs more than once in a row, in one list or in several, counts once, with
 * its best score: parts may overlap. (A device kernel could not report it as misuse either.)
 * Devices  dosa_cuda_merge_topk (dosa_cuda.h) takes the same structures with device pointers.
 */
#ifndef DOSA_DOSA_MERGE_H
#define DOSA_DOSA_MERGE_H

#include "dosa/dosa.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DOSA_MAX_LISTS = 65536 /* L: 0 .. 65536 */
};

/* L lists of scored keys for each of Q rows. Entries of a list stand in any order; those from the
 * first negative id on are not looked at.
 *
 * Padded (offsets null): list l has `width` entries for row t, from l * list_stride + t *
 * row_stride on. That is how an all-gather of (Q, K) answers leaves them.
 * Packed: list l has the entries [offsets[l][t], offsets[l][t + 1]) for row t, which is what
 * exchanges of lists of different lengths leave; width and the strides are not looked at. */
typedef struct dosa_candidates {
  size_t struct_size;     /* sizeof(dosa_candidates) */
  int64_t num_rows;       /* Q >= 0 */
  int64_t num_lists;      /* L, 0 .. DOSA_MAX_LISTS */
  int64_t width;          /* C >= 0 */
  int32_t topk;           /* K, 1 .. DOSA_MAX_TOPK; may exceed what the lists hold */
  int32_t order;          /* dosa_order of the answer */
  int32_t threads;        /* OpenMP threads; 0: the runtime's default */
  int32_t reserved;       /* 0 */
  const float* scores;    /* [L, Q, C], or packed */
  const int32_t* ids;     /* the same; ids of the whole context */
  int64_t list_stride;    /* elements between lists, of both arrays; >= C */
  int64_t row_stride;     /* elements between rows, of both arrays; >= C */
  const int64_t* offsets; /* [L, Q + 1], elements from scores and ids; null: padded */
} dosa_candidates;

/* Bytes that dosa_merge_topk needs (pointers are ignored): some 24 K a thread, and 12 KiB. */
DOSA_API dosa_status dosa_merge_workspace_bytes(const dosa_candidates* candidates, size_t* bytes);

/* The K best candidates of every row.
 * output: as for dosa_topk; rows and stats must be null.
 * workspace: any alignment, at least dosa_merge_workspace_bytes() bytes. Nothing is allocated.
 * Errors: DOSA_INVALID_ARGUMENT where a size, stride, pointer or option is not allowed, or where
 * offsets are negative or decrease. */
DOSA_API dosa_status dosa_merge_topk(const dosa_candidates* candidates, const dosa_output* output,
                                     void* workspace, size_t workspace_bytes);

#ifdef __cplusplus
}
#endif

#endif /* DOSA_DOSA_MERGE_H */
