// SPDX-License-Identifier: Apache-2.0
// The calls of the C interface. Arrays come in and go out through DLPack, nothing is copied, and
// the interpreter is free while the engine runs.
#include <dosa/dosa.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <string>
#include <utility>

#include "calls.hpp"

namespace dosa::python {
namespace {

/// The problem of a call.
class Problem : private Inputs {
 public:
  Problem(nb::handle q, nb::handle k, nb::handle k_scale, nb::handle weights, nb::handle k_start,
          nb::handle k_end, nb::handle index_offset, nb::handle page_table, std::int64_t topk,
          std::int64_t page_size) {
    std::int64_t num_queries = -1;
    std::int64_t num_keys = -1;
    std::int64_t num_heads = -1;
    std::int64_t head_dim = -1;
    std::int64_t dense = 0;
    problem_.struct_size = sizeof problem_;
    problem_.q = read<std::uint8_t, 3>("q", q, Element::kCode, {"Q", "H", "D"},
                                       {&num_queries, &num_heads, &head_dim}, problem_.q_stride);
    problem_.k = read<std::uint8_t, 2>("k", k, Element::kCode, {"N", "D"}, {&num_keys, &head_dim},
                                       problem_.k_stride);
    problem_.k_scale =
        read<float, 1>("k_scale", k_scale, Element::kFloat32, {"N"}, {&num_keys}, dense);
    problem_.weights = read<float, 2>("weights", weights, Element::kFloat32, {"Q", "H"},
                                      {&num_queries, &num_heads}, problem_.weights_stride);
    problem_.num_queries = num_queries;
    problem_.num_keys = num_keys;
    problem_.num_heads = narrow("H", num_heads);
    problem_.head_dim = narrow("D", head_dim);
    problem_.topk = narrow("topk", topk);
    problem_.page_size = narrow("page_size", page_size);
    const auto per_row = [&](const char* name, nb::handle object) -> const std::int32_t* {
      if (object.is_none()) return nullptr;
      return read<std::int32_t, 1>(name, object, Element::kInt32, {"Q"}, {&num_queries}, dense);
    };
    problem_.k_start = per_row("k_start", k_start);
    problem_.k_end = per_row("k_end", k_end);
    problem_.index_offset = per_row("index_offset", index_offset);
    if (!page_table.is_none()) read_page_table(page_table, num_queries);
  }

  [[nodiscard]] const dosa_problem& get() const { return problem_; }

 private:
  /// (pages) for all rows, or (Q, pages).
  void read_page_table(nb::handle table, std::int64_t num_queries) {
    const char* name = "page_table";
    std::int64_t pages = -1;
    std::int64_t stride = 0;
    if (import_array<Input>(name, table).ndim() == 1) {
      problem_.page_table =
          read<std::int32_t, 1>(name, table, Element::kInt32, {"pages"}, {&pages}, stride);
      stride = 0;
    } else {
      problem_.page_table = read<std::int32_t, 2>(name, table, Element::kInt32, {"Q", "pages"},
                                                  {&num_queries, &pages}, stride);
    }
    problem_.page_table_stride = stride;
    problem_.page_table_pages = pages;
  }

  dosa_problem problem_{};
};

std::size_t workspace_bytes(const Problem& problem, const Options& options) {
  std::size_t needed = 0;
  check(dosa_workspace_bytes(&problem.get(), &options.value, &needed));
  return needed;
}

nb::dict topk(const Problem& problem, const Options& options, Workspace& workspace,
              nb::handle indices, nb::handle scores, nb::handle rows, nb::object progress) {
  const std::int64_t num_queries = problem.get().num_queries;
  const std::int64_t kept = problem.get().topk;
  const Target<std::int32_t, 2> ids("indices", indices, Element::kInt32, {"Q", "K"},
                                    {num_queries, kept});
  const Target<float, 2> values("scores", scores, Element::kFloat32, {"Q", "K"},
                                {num_queries, kept});
  const Target<dosa_row_stats, 2> per_row("rows", rows, Element::kCode, {"Q", "bytes"},
                                          {num_queries, sizeof(dosa_row_stats)});
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
  workspace.run(workspace_bytes(problem, options), options, std::move(progress),
                [&](const dosa_options& call, void* memory, std::size_t bytes) {
                  return dosa_topk(&problem.get(), &call, &output, memory, bytes);
                });
  return stats_dict(stats);
}

void scores(const Problem& problem, const Options& options, Workspace& workspace,
            std::int64_t row_begin, std::int64_t row_end, nb::handle out) {
  const Target<float, 2> cells("out", out, Element::kFloat32, {"rows", "N"},
                               {row_end - row_begin, problem.get().num_keys});
  workspace.run(workspace_bytes(problem, options), options, nb::none(),
                [&](const dosa_options& call, void* memory, std::size_t bytes) {
                  return dosa_scores(&problem.get(), &call, row_begin, row_end, cells.data(),
                                     problem.get().num_keys, memory, bytes);
                });
}

template <typename Type>
nb::tuple per_head(const Type* values, std::int32_t num_heads) {
  nb::list list;
  for (std::int32_t h = 0; h < num_heads; ++h) list.append(values[h]);
  return nb::tuple(list);
}

nb::dict bounds(const Problem& problem, const Options& options, Workspace& workspace,
                std::int64_t row, nb::handle out) {
  const Target<float, 1> cells("bounds", out, Element::kFloat32, {"N"}, {problem.get().num_keys});
  dosa_certificate found{};
  found.struct_size = sizeof found;
  workspace.run(workspace_bytes(problem, options), options, nb::none(),
                [&](const dosa_options& call, void* memory, std::size_t bytes) {
                  return dosa_bounds(&problem.get(), &call, row, &found, cells.data(), memory,
                                     bytes);
                });
  const std::int32_t num_heads = problem.get().num_heads;
  nb::dict dict;
  dict["valid"] = found.valid != 0;
  dict["num_positive"] = found.num_positive;
  dict["num_negative"] = found.num_negative;
  dict["num_zero"] = found.num_zero;
  dict["num_retained"] = found.num_retained;
  dict["num_omitted_positive"] = found.num_omitted_positive;
  dict["num_aggregated"] = found.num_aggregated;
  dict["num_ignored"] = found.num_ignored;
  dict["screening_rows"] = found.screening_rows;
  dict["role"] = per_head(found.role, num_heads);
  dict["anchor"] = per_head(found.anchor, num_heads);
  dict["weight"] = per_head(found.weight, num_heads);
  dict["folded_weight"] = per_head(found.folded_weight, num_heads);
  dict["norm"] = per_head(found.norm, num_heads);
  dict["active"] = per_head(found.active, num_heads);
  dict["allowance"] = found.allowance;
  dict["guard"] = found.guard;
  dict["threshold"] = found.threshold;
  return dict;
}

/// Returns (message, report); the message is empty where all was right.
nb::tuple verify(const Problem& problem, const Options& options, nb::object progress) {
  dosa_verification found{};
  found.struct_size = sizeof found;
  std::string message;
  const dosa_status status =
      run(options, std::move(progress), message,
          [&](const dosa_options& call) { return dosa_verify(&problem.get(), &call, &found); });
  if (status != DOSA_OK && status != DOSA_CERTIFICATE) throw Failure{status, message};
  nb::dict dict;
  dict["rows"] = found.rows;
  dict["rows_different"] = found.rows_different;
  dict["first_different"] = found.first_different;
  dict["rejected"] = found.rejected;
  dict["violations"] = found.violations;
  dict["min_margin"] = found.min_margin;
  dict["witness_row"] = found.witness_row;
  dict["witness_key"] = found.witness_key;
  dict["witness_bound"] = found.witness_bound;
  dict["witness_score"] = found.witness_score;
  return nb::make_tuple(message, dict, stats_dict(found.stats));
}

}  // namespace

void bind_calls(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  nb::class_<Problem>(module, "Problem")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle,
                    nb::handle, nb::handle, std::int64_t, std::int64_t>(),
           nb::arg("q").none(), nb::arg("k").none(), nb::arg("k_scale").none(),
           nb::arg("weights").none(), nb::arg("k_start").none(), nb::arg("k_end").none(),
           nb::arg("index_offset").none(), nb::arg("page_table").none(), nb::arg("topk"),
           nb::arg("page_size"))
      .def_prop_ro("num_queries", [](const Problem& self) { return self.get().num_queries; })
      .def_prop_ro("num_keys", [](const Problem& self) { return self.get().num_keys; })
      .def_prop_ro("num_heads", [](const Problem& self) { return self.get().num_heads; })
      .def_prop_ro("head_dim", [](const Problem& self) { return self.get().head_dim; });
  nb::class_<Workspace>(module, "Workspace")
      .def(nb::init<>())
      .def_prop_ro("bytes", &Workspace::bytes)
      .def("clear", &Workspace::clear);
  module.def("topk", &topk, nb::arg("problem"), nb::arg("options"), nb::arg("workspace"),
             nb::arg("indices"), nb::arg("scores").none(), nb::arg("rows").none(),
             nb::arg("progress").none());
  module.def("scores", &scores, nb::arg("problem"), nb::arg("options"), nb::arg("workspace"),
             nb::arg("row_begin"), nb::arg("row_end"), nb::arg("out"));
  module.def("bounds", &bounds, nb::arg("problem"), nb::arg("options"), nb::arg("workspace"),
             nb::arg("row"), nb::arg("out").none());
  module.def("verify", &verify, nb::arg("problem"), nb::arg("options"), nb::arg("progress").none());
}

}  // namespace dosa::python
