// SPDX-License-Identifier: Apache-2.0
// The calls of the C interface. Arrays come in and go out through DLPack, nothing is copied, and
// the interpreter is free while the engine runs.
#include <dosa/dosa.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arrays.hpp"
#include "parts.hpp"

namespace nb = nanobind;

namespace dosa::python {
namespace {

using Input = nb::ndarray<nb::ro>;
using Output = nb::ndarray<>;

/// The array behind `object`, which the result keeps alive.
template <typename Imported>
Imported import_array(const char* name, nb::handle object) {
  Imported array;
  if (!nb::try_cast(object, array, false) || !array.is_valid()) {
    throw Refusal(Refusal::Kind::kType, name, nb::type_name(object.type()).c_str(),
                  std::string(Imported::ReadOnly ? "an" : "a writable") +
                      " array whose memory DLPack or the buffer protocol exports");
  }
  return array;
}

template <typename Imported>
Array describe(const Imported& source) {
  return {.data = source.data(),
          .shape = {source.shape_ptr(), source.ndim()},
          .strides = {source.stride_ptr(), source.ndim()},
          .type_code = source.dtype().code,
          .type_bits = source.dtype().bits,
          .lanes = source.dtype().lanes,
          .device_type = source.device_type()};
}

/// A contiguous array that the engine writes; none is a null pointer.
template <typename Type, std::size_t Rank>
class Target {
 public:
  Target(const char* name, nb::handle object, Element element, const char* const (&letters)[Rank],
         std::array<std::int64_t, Rank> extents) {
    if (object.is_none()) return;
    array_ = import_array<Output>(name, object);
    check_array(name, describe(array_), element, letters, extents, Rank);
    data_ = static_cast<Type*>(array_.data());
  }
  [[nodiscard]] Type* data() const { return data_; }

 private:
  Output array_;
  Type* data_ = nullptr;
};

/// Inputs that have been checked; keeps their exporters alive.
class Problem {
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
  /// The first dimension may have any stride that keeps rows apart; those behind it are contiguous.
  template <typename Type, std::size_t Rank>
  const Type* read(const char* name, nb::handle object, Element element,
                   const char* const (&letters)[Rank], std::int64_t* const (&extents)[Rank],
                   std::int64_t& row_stride) {
    Input array = import_array<Input>(name, object);
    std::array<std::int64_t, Rank> found{};
    for (std::size_t i = 0; i < Rank; ++i) found[i] = *extents[i];
    constexpr std::size_t kInner = Rank == 1 ? 1 : Rank - 1;
    row_stride = check_array(name, describe(array), element, letters, found, kInner);
    for (std::size_t i = 0; i < Rank; ++i) *extents[i] = found[i];
    arrays_.push_back(array);
    return static_cast<const Type*>(array.data());
  }

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
  std::vector<Input> arrays_;
};

/// Calls a Python function with (rows_done, rows_total). An exception in it ends the reports and is
/// raised once the engine has returned.
class Progress {
 public:
  Progress(nb::object function, dosa_options& options) : function_(std::move(function)) {
    if (function_.is_none()) return;
    options.progress = [](void* user, std::int64_t done, std::int64_t total) {
      static_cast<Progress*>(user)->report(done, total);
    };
    options.progress_user = this;
  }

  void raise() {
    if (error_) throw nb::python_error(std::move(*error_));
  }

 private:
  void report(std::int64_t done, std::int64_t total) noexcept {
    const nb::gil_scoped_acquire acquire;
    if (error_) return;
    try {
      function_(done, total);
    } catch (nb::python_error& error) {
      error_.emplace(std::move(error));
    }
  }

  nb::object function_;
  std::optional<nb::python_error> error_;
};

/// True in a process that was forked after this module was loaded.
std::atomic<bool> forked{false};

/// Runs body(options), which returns a status, without the interpreter.
template <typename Body>
dosa_status run(const Options& options, nb::object progress, std::string& message, Body body) {
  dosa_options call = options.value;
  Progress reports(std::move(progress), call);
  dosa_status status = DOSA_OK;
  const auto work = [&] {
    status = body(call);
    if (status != DOSA_OK) message = dosa_last_error();
  };
  {
    const nb::gil_scoped_release release;
    if (forked) {
      // GNU OpenMP keeps a team for each thread that has called it. A fork copies the record of the
      // team but not its threads, and a call would wait for them forever; a new thread has no team.
      std::thread(work).join();
    } else {
      work();
    }
  }
  reports.raise();
  return status;
}

/// Memory that grows to what the calls need. It serves one call at a time.
class Workspace {
 public:
  /// Runs body(options, memory, bytes) without the interpreter.  Throws: Failure.
  template <typename Body>
  void run(const Problem& problem, const Options& options, nb::object progress, Body body) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      throw Refusal(Refusal::Kind::kValue, "Indexer", "a call in progress",
                    "one call at a time (one Indexer per thread)");
    }
    reserve(problem, options);
    std::string message;
    const dosa_status status =
        python::run(options, std::move(progress), message,
                    [&](const dosa_options& call) { return body(call, memory_.get(), bytes_); });
    if (status != DOSA_OK) throw Failure{status, message};
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  void clear() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  void reserve(const Problem& problem, const Options& options) {
    std::size_t needed = 0;
    check(dosa_workspace_bytes(&problem.get(), &options.value, &needed));
    if (needed <= bytes_) return;
    memory_.reset();
    bytes_ = 0;
    memory_.reset(new std::byte[needed]);
    bytes_ = needed;
  }

  std::mutex mutex_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

nb::dict stats_dict(const dosa_stats& stats) {
  nb::dict dict;
  dict["rows"] = stats.rows;
  dict["visible"] = stats.visible;
  dict["screened"] = stats.screened;
  dict["fully_scored"] = stats.fully_scored;
  dict["records"] = stats.records;
  dict["rounds"] = stats.rounds;
  dict["fallback_rows"] = stats.fallback_rows;
  dict["short_rows"] = stats.short_rows;
  dict["screened_rows"] = stats.screened_rows;
  dict["mean_slack"] = stats.mean_slack;
  dict["mean_deficit"] = stats.mean_deficit;
  dict["seconds"] = stats.seconds;
  return dict;
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
  workspace.run(problem, options, std::move(progress),
                [&](const dosa_options& call, void* memory, std::size_t bytes) {
                  return dosa_topk(&problem.get(), &call, &output, memory, bytes);
                });
  return stats_dict(stats);
}

void scores(const Problem& problem, const Options& options, Workspace& workspace,
            std::int64_t row_begin, std::int64_t row_end, nb::handle out) {
  const Target<float, 2> cells("out", out, Element::kFloat32, {"rows", "N"},
                               {row_end - row_begin, problem.get().num_keys});
  workspace.run(problem, options, nb::none(),
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
  workspace.run(
      problem, options, nb::none(), [&](const dosa_options& call, void* memory, std::size_t bytes) {
        return dosa_bounds(&problem.get(), &call, row, &found, cells.data(), memory, bytes);
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
