// SPDX-License-Identifier: Apache-2.0
// Decode steps on the device: the workspace of a call, and its launches.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "dosa/dosa_decode.h"
#include "select/paged_resident_sm90.cuh"
#include "select/paged_scan_sm90.cuh"
#include "select/paged_witness_sm90.cuh"

namespace dosa::engine {

/// Everything that follows from a valid problem's shape and options.
struct PagedShape {
  int padded_heads;  // 32, 64 or 128
  int max_context;   // tokens that the block table and the cache have room for
  bool witnesses;    // long contexts: some tokens are scored first
  bool slots;        // ids are slots
  int64_t chunk;     // requests that are answered together
  int capacity;      // records of a segment and row
  int reduce_from;
  bool resident;  // where the scores fit into shared memory, nothing is recorded
};
PagedShape make_paged_shape(const dosa_paged_problem& problem, const dosa_options& options);

struct PagedBuffers {
  select::WitnessResults witnesses;
  select::PagedRecords found;
  select::ResidentRows resident;
};

/// Places the buffers from `base` on (null to measure) and returns the bytes they take.
size_t place_paged_buffers(const dosa_paged_problem& problem, const PagedShape& shape, void* base,
                           PagedBuffers& buffers);

/// All arguments are valid. Throws CudaError.
void cuda_paged_topk(const dosa_paged_problem& problem, const dosa_options& options,
                     const dosa_output& output, void* workspace, cudaStream_t stream);
void cuda_paged_scores(const dosa_paged_problem& problem, float* scores, int64_t stride,
                       cudaStream_t stream);
void cuda_paged_gather(const dosa_paged_gather_problem& problem, cudaStream_t stream);
void cuda_paged_insert(const dosa_paged_insert_problem& problem, cudaStream_t stream);

}  // namespace dosa::engine
