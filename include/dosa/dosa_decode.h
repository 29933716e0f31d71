/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding with DoSA: the exact Top-K of a few queries per request over a paged key cache.
 *
 * The scores, their order, the ranges of H, D and K, errors and threads are those of dosa.h: a
 * query gets the very bytes that dosa_topk returns for it on the keys of its request, gathered in
 * order. Letters for shapes as there, and B requests.
 *
 * Page
 *   One block of page_size tokens: page_size * D bytes of e4m3fn keys, token after token, then
 *   page_size fp32 scales (64 tokens of D = 128: 8192 + 256 bytes). Pages lie page_stride bytes
 *   apart.
 *
 * Request
 *   Token p of request b lies in page block_table[b, p / page_size] at p % page_size. Entries
 *   behind the last block that a length reaches are never looked at.
 *
 * Rows
 *   Query t of request b is row b * next_n + t and sees the tokens [0, length) of its request.
 *   Lengths are data: those below 1 give a row of -1, those above max_context count as max_context.
 *
 * Bad data
 *   Where a length reaches a block that the table does not have, or one whose page does not exist,
 *   the call is refused before any work with the request, the block and what was found in it. A
 *   device engine, which reads lengths and tables while it computes, cannot refuse: there the
 *   ids of such a row are undefined.
 */
#ifndef DOSA_DOSA_DECODE_H
#define DOSA_DOSA_DECODE_H

#include "dosa/dosa.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DOSA_MAX_NEXT_N = 8 /* query tokens per request: 1 .. 8 */
};

/* The key cache of one layer. */
typedef struct dosa_page_cache {
  size_t struct_size;  /* sizeof(dosa_page_cache) */
  uint8_t* pages;      /* [num_pages], aligned to 4 bytes; only dosa_paged_insert writes */
  int64_t page_stride; /* bytes between pages, >= page_size * (D + 4), a multiple of 4 */
  int64_t num_pages;   /* 0 .. 2^31 - 1 */
  int32_t page_size;   /* tokens: 1, 16, 32, 64 or 128 */
  int32_t head_dim;    /* D, a multiple of 16, 16 .. DOSA_MAX_HEAD_DIM */
} dosa_page_cache;

/* What context_lens holds. */
typedef enum dosa_lengths {
  DOSA_LENGTHS_PER_QUERY = 0,  /* [B, next_n]: the length that each query sees */
  DOSA_LENGTHS_PER_REQUEST = 1 /* [B]: that of the last query; query t sees next_n - 1 - t fewer */
} dosa_lengths;

/* One decode step. Strides are in elements, but witness_stride. Of options (dosa.h) mode,
 * threshold, index_form, order, threads, forced_first, forced_last and workspace_limit count;
 * progress is not called, and the rest is refused with DOSA_UNSUPPORTED unless it has its default.
 * So are the modes `screen` and `dosa`: a key that is prepared for a handful of queries costs more
 * than their full scores (docs/decode.md). Ids of DOSA_INDEX_ABSOLUTE and _RELATIVE are positions
 * in the request. */
typedef struct dosa_paged_problem {
  size_t struct_size;           /* sizeof(dosa_paged_problem) */
  const dosa_page_cache* cache; /* the structure, too, is read during the call only */
  int64_t batch;                /* B, 0 .. 2^24 */
  int64_t max_context;          /* most tokens of a request, 0 .. 2^31 - 1 */
  int32_t next_n;               /* queries per request, 1 .. DOSA_MAX_NEXT_N */
  int32_t num_heads;            /* H, 1 .. DOSA_MAX_HEADS */
  int32_t topk;                 /* K, 1 .. DOSA_MAX_TOPK; may exceed any length */
  int32_t lengths;              /* dosa_lengths */
  const uint8_t* q;             /* [B, next_n, H, D] e4m3fn codes, (H, D) contiguous */
  int64_t q_stride;             /* between queries, >= H * D */
  const float* weights;         /* [B, next_n, H], all other scales folded in */
  int64_t weights_stride;       /* between queries, >= H */
  const int32_t* context_lens;  /* [B, next_n] or [B]: see lengths */
  int64_t context_lens_stride;  /* between requests, >= next_n or >= 1 */
  const int32_t* block_table;   /* [B, blocks] */
  int64_t block_table_stride;   /* between requests, >= block_table_blocks */
  int64_t block_table_blocks;   /* entries of each request */
  const int32_t* index_offset;  /* [B * next_n], DOSA_INDEX_OFFSET only */
  const int32_t* slot_table;    /* [B, pages], DOSA_INDEX_SLOT only: the pages of another cache in
                                   which ids are wanted; null: block_table and its page size */
  int64_t slot_table_stride;    /* between requests, >= slot_table_pages */
  int64_t slot_table_pages;     /* entries of each request */
  int32_t slot_page_size;       /* tokens per entry, >= 1 */
  int32_t witness_count;        /* states behind `witnesses` */
  void* witnesses;              /* [witness_count] states, aligned to 4 bytes; null: none */
  int64_t witness_stride;       /* bytes between states, a multiple of 4, at least
                                   dosa_witness_bytes() of K */
  const int32_t* witness_index; /* [B] state of each request; outside [0, witness_count): none.
                                   null: request b has state b */
} dosa_paged_problem;

/* Temporal witnesses. A state remembers which tokens a sequence selected last. The next step scores
 * them first: the K-th best of any K distinct visible tokens bounds the K-th score from below (E2),
 * and neighbouring steps select nearly the same tokens, so that the bound is tight from the start.
 * Each call reads the state of a request and rewrites it from its last query with a token to see.
 *
 * A state is a hint. All zero bytes are the empty one; any other contents, from another sequence,
 * from before tokens were taken back, torn or random, change the time and never the answer: ids are
 * taken as numbers of tokens, those that are no visible token or named twice are left out, and all
 * are scored afresh. A state may move to other memory at any time by copying its bytes. */

/* Bytes of a state for K. */
DOSA_API dosa_status dosa_witness_bytes(int32_t topk, size_t* bytes);

/* Writes a state from known winners, such as the row of dosa_topk that ends a prefill.
 * ids [count] numbers of tokens in any order, of which those that the state has room for are kept;
 * negative ones are left out. */
DOSA_API dosa_status dosa_witness_set(void* state, int32_t topk, const int32_t* ids, int64_t count);

/* Bytes that dosa_paged_topk needs for these shapes and options (pointers but `cache` are ignored).
 * Errors: as for dosa_workspace_bytes. */
DOSA_API dosa_status dosa_paged_workspace_bytes(const dosa_paged_problem* problem,
                                                const dosa_options* options, size_t* bytes);

/* The exact Top-K of every row; output (dosa.h) with Q = B * next_n.
 * workspace: any alignment, at least dosa_paged_workspace_bytes() bytes. Nothing is allocated.
 * All threads share a request whose tokens are a large part of the call's; statistics depend on the
 * thread count, ids and scores on nothing but the inputs. */
DOSA_API dosa_status dosa_paged_topk(const dosa_paged_problem* problem, const dosa_options* options,
                                     const dosa_output* output, void* workspace,
                                     size_t workspace_bytes);

/* Pages -> contiguous keys, for prefill: token p of request b becomes key cu_seq_lens[b] + p. */
typedef struct dosa_paged_gather_problem {
  size_t struct_size;           /* sizeof(dosa_paged_gather_problem) */
  const dosa_page_cache* cache; /* read */
  int64_t batch;                /* B, 0 .. 2^24 */
  const int32_t* block_table;   /* [B, blocks] */
  int64_t block_table_stride;   /* elements between requests, >= block_table_blocks */
  int64_t block_table_blocks;   /* entries of each request */
  const int32_t* cu_seq_lens;   /* [B + 1], not decreasing, from 0 */
  int64_t num_keys;             /* room for keys: cu_seq_lens[B] may not exceed it */
  uint8_t* k;                   /* [num_keys, D], written up to cu_seq_lens[B] */
  int64_t k_stride;             /* elements between keys, >= D */
  float* k_scale;               /* [num_keys], likewise */
  int32_t threads;              /* OpenMP threads; 0: the runtime's default */
  int32_t reserved;             /* 0 */
} dosa_paged_gather_problem;
DOSA_API dosa_status dosa_paged_gather(const dosa_paged_gather_problem* problem);

/* The scale of a key from amax, the largest magnitude of its coordinates that is no NaN; all
 * operations in fp32, round to nearest. */
typedef enum dosa_scale_format {
  DOSA_SCALE_FP32 = 0, /* max(amax, 1e-4) / 448 */
  DOSA_SCALE_UE8M0 = 1 /* the least power of two that is not below that */
} dosa_scale_format;

/* New keys -> pages. A coordinate x becomes the e4m3fn code nearest to x / scale (fp32 quotient,
 * ties to even), saturating at 448; NaN stays NaN. */
typedef struct dosa_paged_insert_problem {
  size_t struct_size;           /* sizeof(dosa_paged_insert_problem) */
  const dosa_page_cache* cache; /* written */
  int64_t num_tokens;           /* T >= 0 */
  const uint16_t* k;            /* [T, D] bf16 */
  int64_t k_stride;             /* elements between keys, >= D */
  const int64_t* slot_mapping;  /* [T] page * page_size + place in it, all distinct; negative: this
                                   token is skipped */
  int32_t scale_format;         /* dosa_scale_format */
  int32_t threads;              /* OpenMP threads; 0: the runtime's default */
} dosa_paged_insert_problem;
DOSA_API dosa_status dosa_paged_insert(const dosa_paged_insert_problem* problem);

#ifdef __cplusplus
}
#endif

#endif /* DOSA_DOSA_DECODE_H */
