// SPDX-License-Identifier: Apache-2.0
// The calls of dosa_decode.h: decode steps over paged caches, gather and insertion, witnesses.
#include <dosa/dosa_decode.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "calls.hpp"

namespace dosa::python {
namespace {

/// A cache as engines hold it: (pages, bytes), (pages, page_size, D + 4) or (pages, page_size, 1,
/// D + 4) uint8, pages any distance apart.
template <typename Imported>
class Cache {
 public:
  Cache(nb::handle object, std::int64_t page_size, std::int64_t head_dim)
      : array_(import_array<Imported>(kName, object)) {
    const Array array = describe(array_);
    const std::size_t rank = array.shape.size();
    std::int64_t pages = -1;
    std::int64_t stride = 0;
    const std::int64_t needed = page_size * (head_dim + 4);
    if (rank == 3 || rank == 4) {
      const char* const letters[] = {"pages", "page_size", rank == 3 ? "D + 4" : "1", "D + 4"};
      std::int64_t extents[] = {-1, page_size, rank == 3 ? head_dim + 4 : 1, head_dim + 4};
      stride = check_array(kName, array, Element::kCode, std::span(letters, rank),
                           std::span(extents, rank), rank - 1);
      pages = extents[0];
    } else {
      const char* const letters[] = {"pages", "bytes"};
      std::int64_t extents[] = {-1, -1};
      stride = check_array(kName, array, Element::kCode, letters, extents, 1);
      pages = extents[0];
      if (extents[1] < needed) {
        throw Refusal(Refusal::Kind::kValue, kName, "pages of " + std::to_string(extents[1]),
                      "at least " + std::to_string(needed) + " bytes for " +
                          std::to_string(page_size) + " tokens of D = " + std::to_string(head_dim));
      }
    }
    cache_.struct_size = sizeof cache_;
    cache_.pages = static_cast<std::uint8_t*>(const_cast<void*>(array.data));
    cache_.page_stride = pages > 1 ? stride : needed;
    cache_.num_pages = pages;
    cache_.page_size = narrow("page_size", page_size);
    cache_.head_dim = narrow("D", head_dim);
  }

  [[nodiscard]] const dosa_page_cache& get() const { return cache_; }

 private:
  static constexpr const char* kName = "kv_cache";
  Imported array_;  // keeps its exporter alive
  dosa_page_cache cache_{};
};

using ReadCache = Cache<Input>;
using WrittenCache = Cache<Output>;

std::size_t witness_bytes(std::int64_t topk) {
  std::size_t bytes = 0;
  check(dosa_witness_bytes(narrow("topk", topk), &bytes));
  return bytes;
}

/// A decode step whose arrays have been checked; keeps their exporters alive.
class PagedProblem : private Inputs {
 public:
  PagedProblem(nb::handle q, const ReadCache& cache, nb::handle weights, nb::handle context_lens,
               nb::handle block_table, nb::handle index_offset, nb::handle slot_table,
               nb::handle states, nb::handle witness_index, std::int64_t topk,
               std::int64_t slot_page_size, std::int64_t max_context)
      : cache_(cache) {
    std::int64_t batch = -1;
    std::int64_t next_n = -1;
    std::int64_t heads = -1;
    std::int64_t dim = cache.get().head_dim;
    std::int64_t dense = 0;
    problem_.struct_size = sizeof problem_;
    problem_.q = read<std::uint8_t, 4>("q", q, Element::kCode, {"B", "next_n", "H", "D"},
                                       {&batch, &next_n, &heads, &dim}, dense);
    // Queries lie one after another: a stride between requests alone cannot be expressed.
    problem_.q_stride = heads * dim;
    if (batch > 1 && dense != next_n * heads * dim) {
      throw Refusal(Refusal::Kind::kValue, "q", "requests apart", "a contiguous array");
    }
    std::int64_t rows = batch * next_n;
    problem_.weights = read<float, 2>("weights", weights, Element::kFloat32, {"B * next_n", "H"},
                                      {&rows, &heads}, problem_.weights_stride);
    problem_.batch = batch;
    problem_.next_n = narrow("next_n", next_n);
    problem_.num_heads = narrow("H", heads);
    problem_.topk = narrow("topk", topk);
    problem_.max_context = max_context;
    read_lengths(context_lens, batch, next_n);
    problem_.block_table_blocks = -1;  // any
    problem_.block_table =
        read<std::int32_t, 2>("block_table", block_table, Element::kInt32, {"B", "blocks"},
                              {&batch, &problem_.block_table_blocks}, problem_.block_table_stride);
    if (!index_offset.is_none()) {
      problem_.index_offset = read<std::int32_t, 1>("index_offset", index_offset, Element::kInt32,
                                                    {"B * next_n"}, {&rows}, dense);
    }
    if (!slot_table.is_none()) {
      problem_.slot_table_pages = -1;
      problem_.slot_table =
          read<std::int32_t, 2>("slot_table", slot_table, Element::kInt32, {"B", "pages"},
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
  [[nodiscard]] std::int64_t rows() const { return problem_.batch * problem_.next_n; }

 private:
  /// (B, next_n) of each query, or (B) of the last one.
  void read_lengths(nb::handle lengths, std::int64_t batch, std::int64_t next_n) {
    const char* name = "context_lens";
    if (import_array<Input>(name, lengths).ndim() == 1) {
      problem_.lengths = DOSA_LENGTHS_PER_REQUEST;
      problem_.context_lens = read<std::int32_t, 1>(name, lengths, Element::kInt32, {"B"}, {&batch},
                                                    problem_.context_lens_stride);
      problem_.context_lens_stride = 1;
      return;
    }
    problem_.lengths = DOSA_LENGTHS_PER_QUERY;
    problem_.context_lens = read<std::int32_t, 2>(name, lengths, Element::kInt32, {"B", "next_n"},
                                                  {&batch, &next_n}, problem_.context_lens_stride);
  }

  void read_witnesses(nb::handle states, nb::handle index, std::int64_t batch) {
    if (states.is_none()) return;
    std::int64_t extents[] = {-1, static_cast<std::int64_t>(witness_bytes(problem_.topk))};
    const char* const letters[] = {"states", "bytes"};
    states_ = import_array<Output>("witnesses", states);
    problem_.witness_stride =
        check_array("witnesses", describe(states_), Element::kCode, letters, extents, 1);
    problem_.witnesses = states_.data();
    problem_.witness_count = narrow("states", extents[0]);
    if (index.is_none()) return;
    std::int64_t dense = 0;
    problem_.witness_index =
        read<std::int32_t, 1>("witness_index", index, Element::kInt32, {"B"}, {&batch}, dense);
  }

  ReadCache cache_;
  dosa_paged_problem problem_{};
  Output states_;
};

nb::dict paged_topk(const PagedProblem& paged, const Options& options, Workspace& workspace,
                    nb::handle indices, nb::handle scores, nb::handle rows) {
  const dosa_paged_problem problem = paged.get();
  const std::int64_t kept = problem.topk;
  const Target<std::int32_t, 2> ids("indices", indices, Element::kInt32, {"rows", "K"},
                                    {paged.rows(), kept});
  const Target<float, 2> values("scores", scores, Element::kFloat32, {"rows", "K"},
                                {paged.rows(), kept});
  const Target<dosa_row_stats, 2> per_row("rows", rows, Element::kCode, {"rows", "bytes"},
                                          {paged.rows(), sizeof(dosa_row_stats)});
  dosa_stats stats{};
  stats.struct_size = sizeof stats;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = kept;
  output.scores = values.data();
  output.scores_stride = kept;
  output.rows = per_row.data();
  output.stats = &stats;
  std::size_t needed = 0;
  check(dosa_paged_workspace_bytes(&problem, &options.value, &needed));
  workspace.run(needed, options, nb::none(),
                [&](const dosa_options& call, void* memory, std::size_t bytes) {
                  return dosa_paged_topk(&problem, &call, &output, memory, bytes);
                });
  return stats_dict(stats);
}

/// Runs `body`, which returns a status, without the interpreter.
template <typename Body>
void run_plain(Body body) {
  std::string message;
  const dosa_status status =
      run(Options(), nb::none(), message, [&](const dosa_options&) { return body(); });
  if (status != DOSA_OK) throw Failure{status, message};
}

void paged_gather(const ReadCache& cache, nb::handle block_table, nb::handle cu_seq_lens,
                  nb::handle k, nb::handle k_scale, std::int64_t num_keys, std::int64_t threads) {
  Inputs inputs;
  dosa_paged_gather_problem problem{};
  std::int64_t dense = 0;
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  std::int64_t batch = -1;
  problem.block_table_blocks = -1;  // any
  problem.block_table = inputs.read<std::int32_t, 2>(
      "block_table", block_table, Element::kInt32, {"B", "blocks"},
      {&batch, &problem.block_table_blocks}, problem.block_table_stride);
  problem.batch = batch;
  std::int64_t ends = batch + 1;
  problem.cu_seq_lens = inputs.read<std::int32_t, 1>("cu_seq_lens", cu_seq_lens, Element::kInt32,
                                                     {"B + 1"}, {&ends}, dense);
  const Target<std::uint8_t, 2> codes("k", k, Element::kCode, {"N", "D"},
                                      {num_keys, cache.get().head_dim});
  const Target<float, 1> scales("k_scale", k_scale, Element::kFloat32, {"N"}, {num_keys});
  problem.num_keys = num_keys;
  problem.k = codes.data();
  problem.k_stride = cache.get().head_dim;
  problem.k_scale = scales.data();
  problem.threads = narrow("threads", threads);
  run_plain([&] { return dosa_paged_gather(&problem); });
}

void paged_insert(const WrittenCache& cache, nb::handle k, nb::handle slot_mapping,
                  std::int64_t scale_format, std::int64_t threads) {
  Inputs inputs;
  dosa_paged_insert_problem problem{};
  std::int64_t dense = 0;
  std::int64_t tokens = -1;
  std::int64_t dim = cache.get().head_dim;
  problem.struct_size = sizeof problem;
  problem.cache = &cache.get();
  problem.k = inputs.read<std::uint16_t, 2>("k", k, Element::kBfloat16, {"T", "D"}, {&tokens, &dim},
                                            problem.k_stride);
  problem.slot_mapping = inputs.read<std::int64_t, 1>("slot_mapping", slot_mapping, Element::kInt64,
                                                      {"T"}, {&tokens}, dense);
  problem.num_tokens = tokens;
  problem.scale_format = narrow("scale_format", scale_format);
  problem.threads = narrow("threads", threads);
  run_plain([&] { return dosa_paged_insert(&problem); });
}

void witness_set(nb::handle state, std::int64_t topk, nb::handle ids) {
  Inputs inputs;
  std::int64_t count = -1;
  std::int64_t dense = 0;
  const auto* list =
      inputs.read<std::int32_t, 1>("ids", ids, Element::kInt32, {"ids"}, {&count}, dense);
  const Target<std::uint8_t, 1> memory("state", state, Element::kCode, {"bytes"},
                                       {static_cast<std::int64_t>(witness_bytes(topk))});
  check(dosa_witness_set(memory.data(), narrow("topk", topk), list, count));
}

}  // namespace

void bind_decode(nb::module_& module) {
  nb::class_<ReadCache>(module, "ReadCache")
      .def(nb::init<nb::handle, std::int64_t, std::int64_t>(), nb::arg("kv_cache").none(),
           nb::arg("page_size"), nb::arg("head_dim"));
  nb::class_<WrittenCache>(module, "WrittenCache")
      .def(nb::init<nb::handle, std::int64_t, std::int64_t>(), nb::arg("kv_cache").none(),
           nb::arg("page_size"), nb::arg("head_dim"));
  nb::class_<PagedProblem>(module, "PagedProblem")
      .def(nb::init<nb::handle, const ReadCache&, nb::handle, nb::handle, nb::handle, nb::handle,
                    nb::handle, nb::handle, nb::handle, std::int64_t, std::int64_t, std::int64_t>(),
           nb::arg("q").none(), nb::arg("cache"), nb::arg("weights").none(),
           nb::arg("context_lens").none(), nb::arg("block_table").none(),
           nb::arg("index_offset").none(), nb::arg("slot_table").none(), nb::arg("states").none(),
           nb::arg("witness_index").none(), nb::arg("topk"), nb::arg("slot_page_size"),
           nb::arg("max_context"))
      .def_prop_ro("num_rows", &PagedProblem::rows);
  module.def("paged_topk", &paged_topk, nb::arg("problem"), nb::arg("options"),
             nb::arg("workspace"), nb::arg("indices"), nb::arg("scores").none(),
             nb::arg("rows").none());
  module.def("paged_gather", &paged_gather, nb::arg("cache"), nb::arg("block_table").none(),
             nb::arg("cu_seq_lens").none(), nb::arg("k"), nb::arg("k_scale"), nb::arg("num_keys"),
             nb::arg("threads"));
  module.def("paged_insert", &paged_insert, nb::arg("cache"), nb::arg("k").none(),
             nb::arg("slot_mapping").none(), nb::arg("scale_format"), nb::arg("threads"));
  module.def("witness_bytes", &witness_bytes, nb::arg("topk"));
  module.def("witness_set", &witness_set, nb::arg("state"), nb::arg("topk"), nb::arg("ids").none());
}

}  // namespace dosa::python
