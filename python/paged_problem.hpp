// SPDX-License-Identifier: Apache-2.0
// The arrays of the calls of dosa_decode.h, on the host or on a device, checked.
#pragma once

#include <dosa/dosa_decode.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "arrays.hpp"
#include "parts.hpp"

namespace dosa::python {

namespace nb = nanobind;

/// A cache as engines hold it: (pages, bytes), (pages, page_size, D + 4) or (pages, page_size, 1,
/// D + 4) uint8, pages any distance apart. Source reads it and keeps it alive.
template <typename Source>
class Cache {
 public:
  Cache(nb::handle object, std::int64_t page_size, std::int64_t head_dim, bool written) {
    cache_.struct_size = sizeof cache_;
    cache_.page_size = narrow("page_size", page_size);
    cache_.head_dim = narrow("D", head_dim);
    const void* data = source_.inspect(kName, object, written, [&](const Array& array) {
      check_pages(array, page_size, head_dim);
    });
    cache_.pages = static_cast<std::uint8_t*>(const_cast<void*>(data));
  }

  [[nodiscard]] const dosa_page_cache& get() const { return cache_; }
  [[nodiscard]] const Source& source() const { return source_; }

 private:
  static constexpr const char* kName = "kv_cache";

  void check_pages(const Array& array, std::int64_t page_size, std::int64_t head_dim) {
    const std::size_t rank = array.shape.size();
    const std::int64_t needed = page_size * (head_dim + 4);
    std::int64_t stride = 0;
    if (rank == 3 || rank == 4) {
      const char* const letters[] = {"pages", "page_size", rank == 3 ? "D + 4" : "1", "D + 4"};
      std::int64_t extents[] = {-1, page_size, rank == 3 ? head_dim + 4 : 1, head_dim + 4};
      stride = check_array(kName, array, Element::kCode, std::span(letters, rank),
                           std::span(extents, rank), rank - 1, Source::kPlace);
      cache_.num_pages = extents[0];
    } else {
      const char* const letters[] = {"pages", "bytes"};
      std::int64_t extents[] = {-1, -1};
      stride = check_array(kName, array, Element::kCode, letters, extents, 1, Source::kPlace);
      cache_.num_pages = extents[0];
      if (extents[1] < needed) {
        throw Refusal(Refusal::Kind::kValue, kName, "pages of " + std::to_string(extents[1]),
                      "at least " + std::to_string(needed) + " bytes for " +
                          std::to_string(page_size) + " tokens of D = " + std::to_string(head_dim));
      }
    }
    cache_.page_stride = cache_.num_pages > 1 ? stride : needed;
  }

  Source source_;
  dosa_page_cache cache_{};
};

/// The bytes of a witness state.
inline std::size_t witness_bytes(std::int64_t topk) {
  std::size_t bytes = 0;
  check(dosa_witness_bytes(narrow("topk", topk), &bytes));
  return bytes;
}

/// A decode step whose arrays have been checked; Source reads them and keeps them alive.
template <typename Source>
class PagedProblem : private Source {
 public:
  PagedProblem(nb::handle q, const Cache<Source>& cache, nb::handle weights,
               nb::handle context_lens, nb::handle block_table, nb::handle index_offset,
               nb::handle slot_table, nb::handle states, nb::handle witness_index,
               std::int64_t topk, std::int64_t slot_page_size, std::int64_t max_context)
      : Source(cache.source()), cache_(cache) {
    std::int64_t batch = -1;
    std::int64_t next_n = -1;
    std::int64_t heads = -1;
    std::int64_t dim = cache.get().head_dim;
    std::int64_t dense = 0;
    problem_.struct_size = sizeof problem_;
    problem_.q = this->template read<std::uint8_t, 4>(
        "q", q, Element::kCode, {"B", "next_n", "H", "D"}, {&batch, &next_n, &heads, &dim}, dense);
    // Queries lie one after another: a stride between requests alone cannot be expressed.
    problem_.q_stride = heads * dim;
    if (batch > 1 && dense != next_n * heads * dim) {
      throw Refusal(Refusal::Kind::kValue, "q", "requests apart", "a contiguous array");
    }
    std::int64_t rows = batch * next_n;
    problem_.weights =
        this->template read<float, 2>("weights", weights, Element::kFloat32, {"B * next_n", "H"},
                                      {&rows, &heads}, problem_.weights_stride);
    problem_.batch = batch;
    problem_.next_n = narrow("next_n", next_n);
    problem_.num_heads = narrow("H", heads);
    problem_.topk = narrow("topk", topk);
    problem_.max_context = max_context;
    read_lengths(context_lens, batch, next_n);
    problem_.block_table_blocks = -1;  // any
    problem_.block_table = this->template read<std::int32_t, 2>(
        "block_table", block_table, Element::kInt32, {"B", "blocks"},
        {&batch, &problem_.block_table_blocks}, problem_.block_table_stride);
    if (!index_offset.is_none()) {
      problem_.index_offset = this->template read<std::int32_t, 1>(
          "index_offset", index_offset, Element::kInt32, {"B * next_n"}, {&rows}, dense);
    }
    if (!slot_table.is_none()) {
      problem_.slot_table_pages = -1;
      problem_.slot_table = this->template read<std::int32_t, 2>(
          "slot_table", slot_table, Element::kInt32, {"B", "pages"},
          {&batch, &problem_.slot_table_pages}, problem_.slot_table_stride);
    }
    problem_.slot_page_size = narrow("slot_page_size", slot_page_size);
    read_witnesses(states, witness_index, batch);
  }

  [[nodiscard]] dosa_paged_problem get() const {
    dosa_paged_problem problem = problem_;
    problem.cache = &cache_.get();
    return problem;
  }
  [[nodiscard]] const Source& source() const { return *this; }
  [[nodiscard]] std::int64_t rows() const { return problem_.batch * problem_.next_n; }

 private:
  /// (B, next_n) of each query, or (B) of the last one.
  void read_lengths(nb::handle lengths, std::int64_t batch, std::int64_t next_n) {
    const char* name = "context_lens";
    if (this->rank(name, lengths) == 1) {
      problem_.lengths = DOSA_LENGTHS_PER_REQUEST;
      problem_.context_lens = this->template read<std::int32_t, 1>(
          name, lengths, Element::kInt32, {"B"}, {&batch}, problem_.context_lens_stride);
      problem_.context_lens_stride = 1;
      return;
    }
    problem_.lengths = DOSA_LENGTHS_PER_QUERY;
    problem_.context_lens =
        this->template read<std::int32_t, 2>(name, lengths, Element::kInt32, {"B", "next_n"},
                                             {&batch, &next_n}, problem_.context_lens_stride);
  }

  void read_witnesses(nb::handle states, nb::handle index, std::int64_t batch) {
    if (states.is_none()) return;
    std::int64_t extents[] = {-1, static_cast<std::int64_t>(witness_bytes(problem_.topk))};
    const char* const letters[] = {"states", "bytes"};
    const char* name = "witnesses";
    const void* data = this->inspect(name, states, true, [&](const Array& array) {
      problem_.witness_stride =
          check_array(name, array, Element::kCode, letters, extents, 1, Source::kPlace);
    });
    problem_.witnesses = const_cast<void*>(data);
    problem_.witness_count = narrow("states", extents[0]);
    if (index.is_none()) return;
    std::int64_t dense = 0;
    problem_.witness_index = this->template read<std::int32_t, 1>(
        "witness_index", index, Element::kInt32, {"B"}, {&batch}, dense);
  }

  Cache<Source> cache_;
  dosa_paged_problem problem_{};
};

/// The table and the ends of requests whose keys are gathered from `cache`. Source is that of the
/// arrays of the call; what is written and how is the caller's to add.
template <typename Source, typename CacheSource>
dosa_paged_gather_problem read_gather(Source& source, const Cache<CacheSource>& cache,
                                      nb::handle block_table, nb::handle cu_seq_lens,
                                      std::int64_t num_keys) {
  dosa_paged_gather_problem problem{};
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  std::int64_t batch = -1;
  std::int64_t dense = 0;
  problem.block_table_blocks = -1;  // any
  problem.block_table = source.template read<std::int32_t, 2>(
      "block_table", block_table, Element::kInt32, {"B", "blocks"},
      {&batch, &problem.block_table_blocks}, problem.block_table_stride);
  problem.batch = batch;
  std::int64_t ends = batch + 1;
  problem.cu_seq_lens = source.template read<std::int32_t, 1>(
      "cu_seq_lens", cu_seq_lens, Element::kInt32, {"B + 1"}, {&ends}, dense);
  problem.num_keys = num_keys;
  return problem;
}

/// New keys and the slots that they go to.
template <typename Source, typename CacheSource>
dosa_paged_insert_problem read_insert(Source& source, const Cache<CacheSource>& cache, nb::handle k,
                                      nb::handle slot_mapping, std::int64_t scale_format) {
  dosa_paged_insert_problem problem{};
  std::int64_t dense = 0;
  std::int64_t tokens = -1;
  std::int64_t dim = cache.get().head_dim;
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  problem.k = source.template read<std::uint16_t, 2>("k", k, Element::kBfloat16, {"T", "D"},
                                                     {&tokens, &dim}, problem.k_stride);
  problem.slot_mapping = source.template read<std::int64_t, 1>(
      "slot_mapping", slot_mapping, Element::kInt64, {"T"}, {&tokens}, dense);
  problem.num_tokens = tokens;
  problem.scale_format = narrow("scale_format", scale_format);
  return problem;
}

/// Adds the classes of caches and decode steps to the module.
template <typename Source>
void bind_paged(nb::module_& module, const char* cache, const char* problem) {
  using Step = PagedProblem<Source>;
  nb::class_<Cache<Source>>(module, cache)
      .def(nb::init<nb::handle, std::int64_t, std::int64_t, bool>(), nb::arg("kv_cache").none(),
           nb::arg("page_size"), nb::arg("head_dim"), nb::arg("written"));
  nb::class_<Step>(module, problem)
      .def(
          nb::init<nb::handle, const Cache<Source>&, nb::handle, nb::handle, nb::handle, nb::handle,
                   nb::handle, nb::handle, nb::handle, std::int64_t, std::int64_t, std::int64_t>(),
          nb::arg("q").none(), nb::arg("cache"), nb::arg("weights").none(),
          nb::arg("context_lens").none(), nb::arg("block_table").none(),
          nb::arg("index_offset").none(), nb::arg("slot_table").none(), nb::arg("states").none(),
          nb::arg("witness_index").none(), nb::arg("topk"), nb::arg("slot_page_size"),
          nb::arg("max_context"))
      .def_prop_ro("num_rows", &Step::rows);
}

}  // namespace dosa::python
