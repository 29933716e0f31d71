/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of DoSA: the exact Top-K of a DeepSeek-Sparse-Attention lightning indexer.
 *
 *   s[q,i] = k_scale[i] * sum_h weights[q,h] * max(0, q[q,h] . k[i])          (E1, docs/math.md)
 *
 * For every query row the K best visible keys are returned, and exactly those: keys are rejected
 * only by an upper bound that is proven to dominate the computed score (docs/math.md).
 *
 * Letters used for shapes: Q queries, H heads, D head dimension, N keys, K kept keys.
 *
 * Order
 *   Higher score first; equal scores: lower key id first; -0 equals +0. +Inf ranks above and -Inf
 *   below every finite score; NaN ranks below everything, by id.
 *
 * Rows
 *   The window [k_start, k_end) is clamped to [0, N]; an empty or inverted window is an empty row.
 *   The m = min(K, window length) ids come first, then -1.
 *
 * Models
 *   Scores are those of a named score model. This engine computes `ieee`: every dot product exact
 *   and rounded once to fp32, then a fixed chain of fp32 operations (docs/numerics.md). Same bytes
 *   for every mode, thread count and instruction set.
 *
 * Errors
 *   Misuse returns a status other than DOSA_OK before any work; dosa_last_error() names the
 *   argument, what was found and what was expected. Nothing here throws.
 *
 * Threads
 *   All functions are re-entrant; two calls may run at once on distinct workspaces.
 */
#ifndef DOSA_DOSA_H
#define DOSA_DOSA_H

#include <stddef.h>
#include <stdint.h>

#define DOSA_VERSION_MAJOR 0
#define DOSA_VERSION_MINOR 1
#define DOSA_VERSION_PATCH 0

#if defined(_WIN32)
#define DOSA_API
#else
#define DOSA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DOSA_MAX_HEADS = 128,    /* H: 1 .. 128 */
  DOSA_MAX_HEAD_DIM = 256, /* D: a multiple of 16 up to 256 */
  DOSA_MAX_TOPK = 8192     /* K: 1 .. 8192 */
};

typedef enum dosa_status {
  DOSA_OK = 0,
  DOSA_INVALID_ARGUMENT = 1,    /* a null pointer, size, stride or option that is not allowed */
  DOSA_WORKSPACE_TOO_SMALL = 2, /* fewer bytes than dosa_workspace_bytes() reported */
  DOSA_UNSUPPORTED = 3,         /* a valid request that this build or machine cannot serve */
  DOSA_CERTIFICATE = 4,         /* a bound below its score was found: a bug, please report it */
  DOSA_INTERNAL = 5             /* anything else that should not happen */
} dosa_status;

/* What is computed for which keys; every mode returns the same answer. */
typedef enum dosa_mode {
  DOSA_MODE_AUTO = 0,   /* by shape and by the survival measured on a sample */
  DOSA_MODE_BASE = 1,   /* score every key, store the scores, select */
  DOSA_MODE_FULL = 2,   /* score every key, keep only scores at or above the threshold */
  DOSA_MODE_SCREEN = 3, /* screen, then keep the scores of all survivors */
  DOSA_MODE_DOSA = 4    /* screen, and keep only survivors' scores at or above the threshold */
} dosa_mode;

typedef enum dosa_threshold {
  DOSA_THRESHOLD_RISING = 0, /* the K-th best exact score so far, all through the scan */
  DOSA_THRESHOLD_FIXED = 1   /* the paper's: fixed once the seeds are scored */
} dosa_threshold;

/* The form of the returned ids. */
typedef enum dosa_index_form {
  DOSA_INDEX_ABSOLUTE = 0, /* key id in [0, N) */
  DOSA_INDEX_RELATIVE = 1, /* id - k_start (clamped) */
  DOSA_INDEX_OFFSET = 2,   /* id - k_start (clamped) + index_offset[row] */
  DOSA_INDEX_SLOT =
      3 /* p = id - k_start (clamped): table[p / page_size] * page_size + p % page_size */
} dosa_index_form;

typedef enum dosa_order {
  DOSA_ORDER_ID = 0,   /* ascending key id, before any mapping of ids */
  DOSA_ORDER_SCORE = 1 /* descending score, ties by ascending id */
} dosa_order;

/* Which heads are evaluated during screening (docs/math.md, section Retained heads). */
typedef enum dosa_retain {
  DOSA_RETAIN_UNCERTAINTY = 0, /* negatives by |w| |q| min(p, 1-p): the paper's rule */
  DOSA_RETAIN_STRENGTH = 1     /* negatives by |w| |q| alone */
} dosa_retain;

/* The allowance for omitted positive heads (E3, E4). */
typedef enum dosa_allowance {
  DOSA_ALLOWANCE_BEST = 0,     /* the smaller of triangle and joint */
  DOSA_ALLOWANCE_TRIANGLE = 1, /* sum_h w_h |d_h| */
  DOSA_ALLOWANCE_JOINT = 2,    /* sqrt(sum_gh [u_g . u_h]+) */
  DOSA_ALLOWANCE_GROUPED = 3   /* per group of coordinates; per key the smaller of it and `best` */
} dosa_allowance;

/* What is subtracted for omitted negative heads (E5). */
typedef enum dosa_aggregate {
  DOSA_AGGREGATE_SUPPORT = 0,  /* [v.k]+ over heads active on at least half of the sample */
  DOSA_AGGREGATE_TWO = 1,      /* [v1.k]+ + [v2.k]+ over two disjoint sets of heads */
  DOSA_AGGREGATE_ABSOLUTE = 2, /* (y1+y2)/2 + |y1-y2|/2, the absolute-value form */
  DOSA_AGGREGATE_ALL = 3,      /* [v.k]+ over all omitted negative heads (ablation) */
  DOSA_AGGREGATE_NONE = 4      /* nothing is subtracted (ablation) */
} dosa_aggregate;

/* The keys on which activation frequencies p_h are measured. */
typedef enum dosa_statistics {
  DOSA_STATISTICS_HARD = 0,   /* best-scoring quarter of a random sample, winners left out */
  DOSA_STATISTICS_RANDOM = 1, /* the whole random sample */
  DOSA_STATISTICS_SEEDS = 2   /* the seeds: the paper's rule */
} dosa_statistics;

/* How dot products are rounded; an answer is exact with respect to one of these models. */
typedef enum dosa_score_model {
  DOSA_MODEL_DEFAULT = 0, /* ieee on the CPU; on a device the model of its own kernels */
  DOSA_MODEL_IEEE = 1,    /* exact, rounded once (docs/numerics.md); the CPU's only model */
  DOSA_MODEL_SM90 = 2,    /* Hopper's FP8 wgmma (docs/numerics-sm90.md) */
  DOSA_MODEL_MMA_F16 = 3, /* mma.sync on e4m3 decoded to fp16 (docs/numerics-mma.md) */
  DOSA_MODEL_MMA_FP8 = 4  /* native e4m3 mma.sync of sm_89 and sm_120 (docs/numerics-mma.md) */
} dosa_score_model;

/* Called with the number of finished rows, from one thread of the call at a time, rows_done not
 * decreasing; with the default floating-point environment. It must not throw; it cannot cancel. */
typedef void (*dosa_progress_fn)(void* user, int64_t rows_done, int64_t rows_total);

typedef struct dosa_options {
  size_t struct_size;        /* set by dosa_options_init */
  int32_t mode;              /* dosa_mode */
  int32_t threshold;         /* dosa_threshold */
  int32_t index_form;        /* dosa_index_form */
  int32_t order;             /* dosa_order */
  int32_t heads;             /* retained heads r, 1 .. H; 0: chosen per group of rows */
  int32_t threads;           /* OpenMP threads; 0: the runtime's default */
  int32_t forced_first;      /* the first a keys of a row are selected as if they scored +Inf */
  int32_t forced_last;       /* likewise the last b keys */
  int32_t retain;            /* dosa_retain */
  int32_t projection;        /* 1: omitted positive heads lean on a retained anchor; 0: ablation */
  int32_t allowance;         /* dosa_allowance */
  int32_t allowance_groups;  /* coordinate groups of DOSA_ALLOWANCE_GROUPED: 2, 4 or 8 */
  int32_t aggregate;         /* dosa_aggregate */
  int32_t statistics;        /* dosa_statistics */
  int32_t score_model;       /* dosa_score_model */
  uint64_t workspace_limit;  /* most bytes that dosa_workspace_bytes may ask for; at least 16 MiB */
  dosa_progress_fn progress; /* may be null */
  void* progress_user;
} dosa_options;

/* Sets every field to its default (mode auto, rising threshold, absolute ids ascending, 64 MiB). */
DOSA_API dosa_status dosa_options_init(dosa_options* options, size_t struct_size);

/* The inputs. Strides are in elements. Nothing is written; nothing past the shapes is read. */
typedef struct dosa_problem {
  size_t struct_size;          /* sizeof(dosa_problem) */
  int64_t num_queries;         /* Q >= 0 */
  int64_t num_keys;            /* N, 0 .. 2^31 - 1 */
  int32_t num_heads;           /* H, 1 .. DOSA_MAX_HEADS */
  int32_t head_dim;            /* D, a multiple of 16, 16 .. DOSA_MAX_HEAD_DIM */
  int32_t topk;                /* K, 1 .. DOSA_MAX_TOPK; may exceed N */
  int32_t page_size;           /* DOSA_INDEX_SLOT: tokens per page, >= 1 */
  const uint8_t* q;            /* [Q, H, D] e4m3fn codes, (H, D) contiguous */
  int64_t q_stride;            /* elements between rows, >= H * D */
  const uint8_t* k;            /* [N, D] e4m3fn codes */
  int64_t k_stride;            /* elements between keys, >= D */
  const float* k_scale;        /* [N]; NaN makes NaN scores, and +-Inf does for most keys */
  const float* weights;        /* [Q, H]; query scale, D^-1/2 and H^-1/2 folded in by the caller */
  int64_t weights_stride;      /* elements between rows, >= H */
  const int32_t* k_start;      /* [Q]; null: 0 */
  const int32_t* k_end;        /* [Q]; null: N */
  const int32_t* index_offset; /* [Q], DOSA_INDEX_OFFSET only */
  const int32_t* page_table;   /* [Q, pages], DOSA_INDEX_SLOT only */
  int64_t page_table_stride;   /* elements between rows; 0: one table for all rows */
  int64_t page_table_pages;    /* entries per row of the table */
} dosa_problem;

/* What one row (or, summed, one call) took. Counts are of (row, key) pairs. */
typedef struct dosa_row_stats {
  int64_t visible;       /* keys in the window */
  int64_t screened;      /* keys whose bound was computed */
  int64_t fully_scored;  /* keys scored with all heads: seeds, sample and survivors */
  int64_t records;       /* scores kept for selection */
  int64_t rounds;        /* times the records were reduced and the threshold raised */
  int32_t fallback;      /* 1: the row was scored without screening because it had to be */
  int32_t heads;         /* retained heads r of the last certificate used; 0: none */
  float first_threshold; /* after the seeds; -Inf while fewer than K keys are scored */
  float last_threshold;  /* the last one used to reject keys */
  float kth_score;       /* the true K-th score; -Inf where fewer than K keys are visible */
  float mean_slack;      /* mean of U - s over the survivors scored (delta); 0 where none */
  float mean_deficit;    /* mean over screened keys of kth_score - threshold in use (b) */
  int32_t reserved;
} dosa_row_stats;

typedef struct dosa_stats {
  size_t struct_size; /* sizeof(dosa_stats), set by the caller */
  int64_t rows;       /* Q */
  int64_t visible, screened, fully_scored, records, rounds; /* sums over rows */
  int64_t fallback_rows; /* rows scored without screening because they had to be (NaN, Inf) */
  int64_t short_rows;    /* rows with at most K visible keys: nothing to select */
  int64_t screened_rows; /* rows that used a certificate */
  double mean_slack;     /* over all survivors scored */
  double mean_deficit;   /* over all screened pairs */
  double seconds;        /* wall time of the call */
} dosa_stats;

typedef struct dosa_output {
  size_t struct_size;     /* sizeof(dosa_output) */
  int32_t* indices;       /* [Q, K], every element is written */
  int64_t indices_stride; /* elements between rows, >= K */
  float* scores;          /* [Q, K] in the order of indices, NaN behind the last; may be null.
                             -0 is returned as +0, forced keys as +Inf */
  int64_t scores_stride;  /* elements between rows, >= K */
  dosa_row_stats* rows;   /* [Q]; may be null */
  dosa_stats* stats;      /* may be null */
} dosa_output;

/* Bytes that dosa_topk needs for this shape and these options (pointers are ignored).
 * Errors: DOSA_INVALID_ARGUMENT where the shape or an option is not allowed, or where the least
 * that the shape needs is over options->workspace_limit. */
DOSA_API dosa_status dosa_workspace_bytes(const dosa_problem* problem, const dosa_options* options,
                                          size_t* bytes);

/* The exact Top-K of every row.
 * workspace: any alignment, at least dosa_workspace_bytes() bytes; contents do not matter.
 * Nothing is allocated. */
DOSA_API dosa_status dosa_topk(const dosa_problem* problem, const dosa_options* options,
                               const dosa_output* output, void* workspace, size_t workspace_bytes);

/* Every visible key's score in the `ieee` model.
 * rows [row_begin, row_end); scores [row_end - row_begin, N], element stride scores_stride >= N.
 * Cells outside a row's window are set to -Inf. */
DOSA_API dosa_status dosa_scores(const dosa_problem* problem, const dosa_options* options,
                                 int64_t row_begin, int64_t row_end, float* scores,
                                 int64_t scores_stride, void* workspace, size_t workspace_bytes);

/* The certificate of one row, for inspection. */
typedef struct dosa_certificate {
  size_t struct_size; /* sizeof(dosa_certificate), set by the caller */
  int32_t valid;      /* 0: the row cannot be screened (non-finite query or weight) */
  int32_t num_positive, num_negative, num_zero; /* heads by the sign of their weight */
  int32_t num_retained;                         /* r */
  int32_t num_omitted_positive;
  int32_t num_aggregated;         /* heads in the aggregate(s) */
  int32_t num_ignored;            /* omitted negative heads in no aggregate */
  int32_t screening_rows;         /* r + auxiliary rows */
  int8_t role[DOSA_MAX_HEADS];    /* 0 zero weight, 1 retained, 2 projected, 3/4 aggregate 1/2, 5
                                     ignored */
  int32_t anchor[DOSA_MAX_HEADS]; /* retained anchor of a projected head, else -1 */
  float weight[DOSA_MAX_HEADS];   /* w_h */
  float folded_weight[DOSA_MAX_HEADS]; /* w~_h of retained heads, else 0 */
  float norm[DOSA_MAX_HEADS];          /* |q_h|, payload units */
  float active[DOSA_MAX_HEADS];        /* p_h on the sample; NaN where there was none */
  float allowance;                     /* E_P: score units per unit of key norm */
  float guard;                         /* everything added for rounding, same units */
  float threshold;                     /* the threshold when the certificate was made */
} dosa_certificate;

/* The certificate that a screening call would make for `row` and the bound U it gives.
 * bounds [N] or null: U for visible keys, +Inf for keys that may not be pruned and outside the
 * window. */
DOSA_API dosa_status dosa_bounds(const dosa_problem* problem, const dosa_options* options,
                                 int64_t row, dosa_certificate* certificate, float* bounds,
                                 void* workspace, size_t workspace_bytes);

typedef struct dosa_verification {
  size_t struct_size; /* sizeof(dosa_verification), set by the caller */
  int64_t rows;
  int64_t rows_different;  /* rows whose ids or scores differ from those of every key scored */
  int64_t first_different; /* the first such row, or -1 */
  int64_t rejected;        /* (row, key) pairs rejected by their bound */
  int64_t violations;      /* rejected pairs with U < s */
  double min_margin;       /* smallest U - s over rejected pairs; +Inf where none */
  int64_t witness_row, witness_key; /* where it was seen, or -1 */
  float witness_bound, witness_score;
  dosa_stats stats; /* of the pruned run (times include the audit) */
} dosa_verification;

/* Runs the call with every rejection audited against the exact score, and compares its ids and
 * scores bit by bit with those of every key scored and selected.
 * Returns DOSA_CERTIFICATE when a bound was violated or an answer differs; the report is filled
 * either way. It allocates what it needs (twice the output, and a workspace). */
DOSA_API dosa_status dosa_verify(const dosa_problem* problem, const dosa_options* options,
                                 dosa_verification* report);

/* One sentence on the last failure in this thread; empty where there was none. */
DOSA_API const char* dosa_last_error(void);

/* The sentence that belongs to a status. */
DOSA_API const char* dosa_status_text(dosa_status status);

/* Library version "major.minor.patch". */
DOSA_API const char* dosa_version(void);

/* The instruction set in use: "AVX3_DL", "AVX3", "AVX2" or "scalar". */
DOSA_API const char* dosa_simd_target(void);

#ifdef __cplusplus
}
#endif

#endif /* DOSA_DOSA_H */
