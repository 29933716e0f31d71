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
#include "problem.hpp"

namespace dosa::python {
namespace {

using HostProblem = Problem<Inputs>;

std::size_t workspace_bytes(const HostProblem& problem, const Options& options) {
  std::size_t needed = 0;
  check(dosa_workspace_bytes(&problem.get(), &options.value, &needed));
  return needed;
}

nb::dict topk(const HostProblem& problem, const Options& options, Workspace& workspace,
              nb::handle indices, nb::handle scores, nb::handle rows, nb::object progress) {
  const std::int64_t num_queries = problem.get().num_queries;
  const std::int64_t kept = problem.get().topk;
  Spans spans = problem.source().spans();
  const Target<std::int32_t, 2> ids("indices", indices, Element::kInt32, {"Q", "K"},
                                    {num_queries, kept}, &spans);
  const Target<float, 2> values("scores", scores, Element::kFloat32, {"Q", "K"},
                                {num_queries, kept}, &spans);
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

void scores(const HostProblem& problem, const Options& options, Workspace& workspace,
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

nb::dict bounds(const HostProblem& problem, const Options& options, Workspace& workspace,
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
nb::tuple verify(const HostProblem& problem, const Options& options, nb::object progress) {
  dosa_verification found{};
  found.struct_size = sizeof found;
  std::string message;
  const dosa_status status =
      run(options, std::move(progress), message,
          [&](const dosa_options& call) { return dosa_verify(&problem.get(), &call, &found); });
  if (status != DOSA_OK && status != DOSA_CERTIFICATE) throw Failure{status, message};
  return nb::make_tuple(message, audit_dict(found), stats_dict(found.stats));
}

}  // namespace

void bind_calls(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  bind_problem<HostProblem>(module, "Problem");
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
