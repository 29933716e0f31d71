// SPDX-License-Identifier: Apache-2.0
// The calls of dosa_decode.h: decode steps over paged caches, gather and insertion, witnesses.
#include <dosa/dosa_decode.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "calls.hpp"
#include "paged_problem.hpp"

namespace dosa::python {
namespace {

using HostCache = Cache<Inputs>;
using HostStep = PagedProblem<Inputs>;

nb::dict paged_topk(const HostStep& paged, const Options& options, Workspace& workspace,
                    nb::handle indices, nb::handle scores, nb::handle rows) {
  const dosa_paged_problem problem = paged.get();
  const std::int64_t kept = problem.topk;
  Spans spans = paged.source().spans();
  const Target<std::int32_t, 2> ids("indices", indices, Element::kInt32, {"rows", "K"},
                                    {paged.rows(), kept}, &spans);
  const Target<float, 2> values("scores", scores, Element::kFloat32, {"rows", "K"},
                                {paged.rows(), kept}, &spans);
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

void paged_gather(const HostCache& cache, nb::handle block_table, nb::handle cu_seq_lens,
                  nb::handle k, nb::handle k_scale, std::int64_t num_keys, std::int64_t threads) {
  Inputs inputs;
  dosa_paged_gather_problem problem =
      read_gather(inputs, cache, block_table, cu_seq_lens, num_keys);
  const Target<std::uint8_t, 2> codes("k", k, Element::kCode, {"N", "D"},
                                      {num_keys, cache.get().head_dim});
  const Target<float, 1> scales("k_scale", k_scale, Element::kFloat32, {"N"}, {num_keys});
  problem.k = codes.data();
  problem.k_stride = cache.get().head_dim;
  problem.k_scale = scales.data();
  problem.threads = narrow("threads", threads);
  run_plain([&] { return dosa_paged_gather(&problem); });
}

void paged_insert(const HostCache& cache, nb::handle k, nb::handle slot_mapping,
                  std::int64_t scale_format, std::int64_t threads) {
  Inputs inputs;
  dosa_paged_insert_problem problem = read_insert(inputs, cache, k, slot_mapping, scale_format);
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
  bind_paged<Inputs>(module, "Cache", "PagedProblem");
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
