// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_check.hpp"

#include <algorithm>
#include <limits>

#include "engine/check.hpp"
#include "engine/check_parts.hpp"
#include "engine/decode.hpp"
#include "engine/decode_pages.hpp"
#include "engine/decode_witness.hpp"
#include "engine/threads.hpp"

namespace dosa::engine {
namespace {

constexpr long long kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr long long kMaxBatch = 1LL << 24;
constexpr int kPageSizes[] = {1, 16, 32, 64, 128};

/// Shape of the cache; `pages` is not looked at.
dosa_status check_cache(const dosa_page_cache* cache) {
  if (cache == nullptr) return null_pointer("cache");
  if (cache->struct_size != sizeof *cache) {
    return bad_size("cache", cache->struct_size, sizeof *cache);
  }
  if (std::find(std::begin(kPageSizes), std::end(kPageSizes), cache->page_size) ==
      std::end(kPageSizes)) {
    return fail(DOSA_INVALID_ARGUMENT,
                "cache.page_size: found %d, expected 1, 16, 32, 64 or 128 tokens",
                cache->page_size);
  }
  const dosa_status status =
      check_ranges({{"cache.num_pages", cache->num_pages, 0, kMaxInt32},
                    {"cache.head_dim", cache->head_dim, 16, DOSA_MAX_HEAD_DIM}});
  if (status != DOSA_OK) return status;
  if (cache->head_dim % 16 != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "cache.head_dim: found %d, expected a multiple of 16",
                cache->head_dim);
  }
  if (cache->page_stride % 4 != 0) {
    return fail(DOSA_INVALID_ARGUMENT, "cache.page_stride: found %lld, expected a multiple of 4",
                static_cast<long long>(cache->page_stride));
  }
  return check_strides({{"cache.page_stride", cache->page_stride, page_bytes(*cache)}});
}

dosa_status check_pages(const dosa_page_cache& cache) {
  if (cache.num_pages > 0 && cache.pages == nullptr) return null_pointer("cache.pages");
  return check_alignment("cache.pages", cache.pages);
}

/// What a decode step has no use for must have its default, so that nobody believes in it.
dosa_status check_decode_options(const dosa_options& options) {
  const dosa_status status = check_options(options);
  if (status != DOSA_OK) return status;
  if (options.mode == DOSA_MODE_SCREEN || options.mode == DOSA_MODE_DOSA) {
    return fail(DOSA_UNSUPPORTED, "options.mode: found %d, expected auto, base or full (0, 1, 2)",
                options.mode);
  }
  const struct {
    const char* name;
    std::int32_t found, expected;
  } fixed[] = {{"options.heads", options.heads, 0},
               {"options.retain", options.retain, DOSA_RETAIN_UNCERTAINTY},
               {"options.projection", options.projection, 1},
               {"options.allowance", options.allowance, DOSA_ALLOWANCE_BEST},
               {"options.aggregate", options.aggregate, DOSA_AGGREGATE_SUPPORT},
               {"options.statistics", options.statistics, DOSA_STATISTICS_HARD}};
  for (const auto& option : fixed) {
    if (option.found == option.expected) continue;
    return fail(DOSA_UNSUPPORTED, "%s: found %d, expected its default %d: nothing is screened",
                option.name, option.found, option.expected);
  }
  return DOSA_OK;
}

/// What the table holds for the first `blocks` blocks of request b: pages in [0, limit).
dosa_status check_table(const char* name, const std::int32_t* table, std::int64_t entries,
                        std::int64_t b, std::int64_t blocks, std::int64_t limit) {
  if (blocks > entries) {
    return fail(
        DOSA_INVALID_ARGUMENT, "%s: found %lld blocks, expected at least %lld (request %lld)", name,
        static_cast<long long>(entries), static_cast<long long>(blocks), static_cast<long long>(b));
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (table[block] >= 0 && table[block] < limit) continue;
    return fail(DOSA_INVALID_ARGUMENT,
                "%s: found page %d (request %lld, block %lld), expected 0 to %lld", name,
                table[block], static_cast<long long>(b), static_cast<long long>(block),
                static_cast<long long>(limit - 1));
  }
  return DOSA_OK;
}

std::int64_t blocks_of(std::int64_t tokens, std::int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

/// Pages of this size whose slots all fit int32.
std::int64_t nameable_pages(std::int64_t page_size) { return (kMaxInt32 + 1) / page_size; }

dosa_status check_blocks(const dosa_paged_problem& problem, const dosa_options& options) {
  const bool slots = options.index_form == DOSA_INDEX_SLOT;
  const bool own = problem.slot_table == nullptr;
  const dosa_page_cache& cache = *problem.cache;
  const std::int64_t limit =
      slots && own ? std::min(cache.num_pages, nameable_pages(cache.page_size)) : cache.num_pages;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t length = longest_context(problem, b);
    dosa_status status =
        check_table("problem.block_table", problem.block_table + b * problem.block_table_stride,
                    problem.block_table_blocks, b, blocks_of(length, cache.page_size), limit);
    if (status == DOSA_OK && slots && !own) {
      status = check_table("problem.slot_table", problem.slot_table + b * problem.slot_table_stride,
                           problem.slot_table_pages, b, blocks_of(length, problem.slot_page_size),
                           nameable_pages(problem.slot_page_size));
    }
    if (status != DOSA_OK) return status;
  }
  return DOSA_OK;
}

dosa_status check_witnesses(const dosa_paged_problem& problem) {
  if (problem.witness_count < 0) {
    return bad_range("problem.witness_count", problem.witness_count, 0, kMaxInt32);
  }
  if (problem.witnesses == nullptr) return DOSA_OK;
  if (problem.witness_stride % 4 != 0) {
    return fail(DOSA_INVALID_ARGUMENT,
                "problem.witness_stride: found %lld, expected a multiple of 4",
                static_cast<long long>(problem.witness_stride));
  }
  return check_strides({{"problem.witness_stride", problem.witness_stride,
                         static_cast<std::int64_t>(witness_bytes(problem.topk))}});
}

dosa_status check_index_form(const dosa_paged_problem& problem, const dosa_options& options) {
  if (options.index_form == DOSA_INDEX_OFFSET && problem.index_offset == nullptr) {
    return null_pointer("problem.index_offset");
  }
  if (options.index_form != DOSA_INDEX_SLOT || problem.slot_table == nullptr) return DOSA_OK;
  const dosa_status status =
      check_ranges({{"problem.slot_table_pages", problem.slot_table_pages, 0, kMaxInt32},
                    {"problem.slot_page_size", problem.slot_page_size, 1, kMaxInt32}});
  if (status != DOSA_OK) return status;
  return check_strides(
      {{"problem.slot_table_stride", problem.slot_table_stride, problem.slot_table_pages}});
}

/// What is gathered fits, and has pages.
dosa_status check_gather_lengths(const dosa_paged_gather_problem& problem) {
  if (problem.cu_seq_lens[0] != 0) {
    return bad_range("problem.cu_seq_lens[0]", problem.cu_seq_lens[0], 0, 0);
  }
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t first = problem.cu_seq_lens[b];
    const std::int64_t last = problem.cu_seq_lens[b + 1];
    if (last < first || last > problem.num_keys) {
      return fail(DOSA_INVALID_ARGUMENT,
                  "problem.cu_seq_lens: found %lld behind request %lld, expected %lld to %lld",
                  static_cast<long long>(last), static_cast<long long>(b),
                  static_cast<long long>(first), static_cast<long long>(problem.num_keys));
    }
    const dosa_status status =
        check_table("problem.block_table", problem.block_table + b * problem.block_table_stride,
                    problem.block_table_blocks, b,
                    blocks_of(last - first, problem.cache->page_size), problem.cache->num_pages);
    if (status != DOSA_OK) return status;
  }
  return DOSA_OK;
}

}  // namespace

dosa_status check_topk_range(int topk) { return check_ranges({{"topk", topk, 1, DOSA_MAX_TOPK}}); }

dosa_status check_decode_geometry(const dosa_paged_problem* problem, const dosa_options* options) {
  if (problem == nullptr) return null_pointer("problem");
  if (options == nullptr) return null_pointer("options");
  if (problem->struct_size != sizeof *problem) {
    return bad_size("problem", problem->struct_size, sizeof *problem);
  }
  if (options->struct_size != sizeof *options) {
    return bad_size("options", options->struct_size, sizeof *options);
  }
  dosa_status status = check_cache(problem->cache);
  if (status != DOSA_OK) return status;
  status = check_ranges(
      {{"problem.batch", problem->batch, 0, kMaxBatch},
       {"problem.max_context", problem->max_context, 0, kMaxInt32},
       {"problem.next_n", problem->next_n, 1, DOSA_MAX_NEXT_N},
       {"problem.num_heads", problem->num_heads, 1, DOSA_MAX_HEADS},
       {"problem.topk", problem->topk, 1, DOSA_MAX_TOPK},
       {"problem.lengths", problem->lengths, DOSA_LENGTHS_PER_QUERY, DOSA_LENGTHS_PER_REQUEST}});
  return status == DOSA_OK ? check_decode_options(*options) : status;
}

dosa_status check_decode_shape(const dosa_paged_problem* problem, const dosa_options* options) {
  const dosa_status status = check_decode_geometry(problem, options);
  if (status != DOSA_OK) return status;
  if (decode_layout(*problem, *options).bytes == 0) {
    return limit_too_small(options->workspace_limit, least_decode_bytes(*problem, *options));
  }
  return DOSA_OK;
}

dosa_status check_decode_pointers(const dosa_paged_problem& problem, const dosa_options& options) {
  dosa_status status = check_pages(*problem.cache);
  if (status != DOSA_OK) return status;
  const struct {
    const char* name;
    const void* pointer;
    bool needed;
  } arrays[] = {{"problem.weights", problem.weights, true},
                {"problem.context_lens", problem.context_lens, true},
                {"problem.block_table", problem.block_table, problem.block_table_blocks > 0},
                {"problem.index_offset", problem.index_offset, false},
                {"problem.slot_table", problem.slot_table, false},
                {"problem.witnesses", problem.witnesses, false},
                {"problem.witness_index", problem.witness_index, false}};
  if (problem.batch > 0 && problem.q == nullptr) return null_pointer("problem.q");
  for (const auto& array : arrays) {
    if (problem.batch > 0 && array.needed && array.pointer == nullptr) {
      return null_pointer(array.name);
    }
    status = check_alignment(array.name, array.pointer);
    if (status != DOSA_OK) return status;
  }
  const std::int64_t lengths =
      problem.lengths == DOSA_LENGTHS_PER_REQUEST ? 1 : std::int64_t{problem.next_n};
  status = check_ranges({{"problem.block_table_blocks", problem.block_table_blocks, 0, kMaxInt32}});
  if (status != DOSA_OK) return status;
  status = check_strides(
      {{"problem.q_stride", problem.q_stride,
        static_cast<std::int64_t>(problem.num_heads) * problem.cache->head_dim},
       {"problem.weights_stride", problem.weights_stride, problem.num_heads},
       {"problem.context_lens_stride", problem.context_lens_stride, lengths},
       {"problem.block_table_stride", problem.block_table_stride, problem.block_table_blocks}});
  if (status == DOSA_OK) status = check_witnesses(problem);
  if (status != DOSA_OK || problem.batch == 0) return status;
  return check_index_form(problem, options);
}

dosa_status check_decode_inputs(const dosa_paged_problem& problem, const dosa_options& options) {
  const dosa_status status = check_decode_pointers(problem, options);
  return status == DOSA_OK ? check_blocks(problem, options) : status;
}

dosa_status check_decode_output(const dosa_paged_problem& problem, const dosa_output* output) {
  dosa_problem rows{};
  rows.num_queries = problem.batch * problem.next_n;
  rows.topk = problem.topk;
  return check_output(rows, output);
}

dosa_status check_decode_workspace(const dosa_paged_problem& problem, const dosa_options& options,
                                   const void* workspace, std::size_t bytes) {
  return check_workspace_size(workspace, bytes, decode_layout(problem, options).bytes);
}

dosa_status check_gather_pointers(const dosa_paged_gather_problem* problem) {
  if (problem == nullptr) return null_pointer("problem");
  if (problem->struct_size != sizeof *problem) {
    return bad_size("problem", problem->struct_size, sizeof *problem);
  }
  dosa_status status = check_cache(problem->cache);
  if (status == DOSA_OK) status = check_pages(*problem->cache);
  if (status != DOSA_OK) return status;
  status = check_ranges({{"problem.batch", problem->batch, 0, kMaxBatch},
                         {"problem.block_table_blocks", problem->block_table_blocks, 0, kMaxInt32},
                         {"problem.num_keys", problem->num_keys, 0, kMaxInt32},
                         {"problem.threads", problem->threads, 0, kMostCallThreads},
                         {"problem.reserved", problem->reserved, 0, 0}});
  if (status != DOSA_OK || problem->batch == 0) return status;
  status = check_strides(
      {{"problem.k_stride", problem->k_stride, problem->cache->head_dim},
       {"problem.block_table_stride", problem->block_table_stride, problem->block_table_blocks}});
  if (status != DOSA_OK) return status;
  const struct {
    const char* name;
    const void* pointer;
    bool needed;
    unsigned alignment;
  } arrays[] = {{"problem.cu_seq_lens", problem->cu_seq_lens, true, 4},
                {"problem.block_table", problem->block_table, problem->block_table_blocks > 0, 4},
                {"problem.k", problem->k, problem->num_keys > 0, 1},
                {"problem.k_scale", problem->k_scale, problem->num_keys > 0, 4}};
  for (const auto& array : arrays) {
    if (array.needed && array.pointer == nullptr) return null_pointer(array.name);
    status = check_alignment(array.name, array.pointer, array.alignment);
    if (status != DOSA_OK) return status;
  }
  return DOSA_OK;
}

dosa_status check_gather(const dosa_paged_gather_problem* problem) {
  const dosa_status status = check_gather_pointers(problem);
  if (status != DOSA_OK || problem->batch == 0) return status;
  return check_gather_lengths(*problem);
}

dosa_status check_insert_pointers(const dosa_paged_insert_problem* problem) {
  if (problem == nullptr) return null_pointer("problem");
  if (problem->struct_size != sizeof *problem) {
    return bad_size("problem", problem->struct_size, sizeof *problem);
  }
  dosa_status status = check_cache(problem->cache);
  if (status == DOSA_OK) status = check_pages(*problem->cache);
  if (status != DOSA_OK) return status;
  status = check_ranges(
      {{"problem.num_tokens", problem->num_tokens, 0, 1LL << 40},
       {"problem.scale_format", problem->scale_format, DOSA_SCALE_FP32, DOSA_SCALE_UE8M0},
       {"problem.threads", problem->threads, 0, kMostCallThreads}});
  if (status != DOSA_OK || problem->num_tokens == 0) return status;
  status = check_strides({{"problem.k_stride", problem->k_stride, problem->cache->head_dim}});
  if (status != DOSA_OK) return status;
  if (problem->k == nullptr) return null_pointer("problem.k");
  if (problem->slot_mapping == nullptr) return null_pointer("problem.slot_mapping");
  status = check_alignment("problem.k", problem->k, 2);
  return status == DOSA_OK ? check_alignment("problem.slot_mapping", problem->slot_mapping, 8)
                           : status;
}

dosa_status check_insert(const dosa_paged_insert_problem* problem) {
  const dosa_status status = check_insert_pointers(problem);
  if (status != DOSA_OK) return status;
  const std::int64_t slots = problem->cache->num_pages * problem->cache->page_size;
  for (std::int64_t t = 0; t < problem->num_tokens; ++t) {
    if (problem->slot_mapping[t] < slots) continue;
    return fail(DOSA_INVALID_ARGUMENT,
                "problem.slot_mapping: found %lld (token %lld), expected less than %lld",
                static_cast<long long>(problem->slot_mapping[t]), static_cast<long long>(t),
                static_cast<long long>(slots));
  }
  return DOSA_OK;
}

}  // namespace dosa::engine
