// SPDX-License-Identifier: Apache-2.0
// What the calls share: arrays in and out, running without the interpreter, a workspace.
#pragma once

#include <dosa/dosa.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "parts.hpp"

namespace dosa::python {

namespace nb = nanobind;

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
          .device_type = source.device_type(),
          .device_id = source.device_id()};
}

/// A contiguous array that the engine writes; none is a null pointer.
template <typename Type, std::size_t Rank>
class Target {
 public:
  /// Where `spans` is given, the array may share no memory with those of it.
  Target(const char* name, nb::handle object, Element element, const char* const (&letters)[Rank],
         std::array<std::int64_t, Rank> extents, Spans* spans = nullptr) {
    if (object.is_none()) return;
    array_ = import_array<Output>(name, object);
    check_array(name, describe(array_), element, letters, extents, Rank);
    if (spans != nullptr) spans->add(name, describe(array_), true);
    data_ = static_cast<Type*>(array_.data());
  }
  [[nodiscard]] Type* data() const { return data_; }

 private:
  Output array_;
  Type* data_ = nullptr;
};

/// Arrays that have been checked; keeps their exporters alive.
class Inputs {
 public:
  static constexpr Place kPlace = Place::kHost;

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
    spans_.add(name, describe(array), false);
    keep(array);
    return static_cast<const Type*>(array.data());
  }
  /// Lets `check` look at an array of any rank; it has to be writable where the call writes it.
  template <typename Check>
  const void* inspect(const char* name, nb::handle object, bool written, Check check) {
    if (!written) {
      Input array = import_array<Input>(name, object);
      check(describe(array));
      spans_.add(name, describe(array), false);
      keep(array);
      return array.data();
    }
    Output array = import_array<Output>(name, object);
    check(describe(array));
    spans_.add(name, describe(array), true);
    written_.push_back(array);
    return array.data();
  }
  void keep(const Input& array) { arrays_.push_back(array); }
  [[nodiscard]] const Spans& spans() const { return spans_; }
  [[nodiscard]] static std::size_t rank(const char* name, nb::handle object) {
    return import_array<Input>(name, object).ndim();
  }

 private:
  std::vector<Input> arrays_;
  std::vector<Output> written_;
  Spans spans_;
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
inline std::atomic<bool> forked{false};

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
  /// Runs body(options, memory, bytes) without the interpreter, on at least `needed` bytes.
  /// Throws: Failure.
  template <typename Body>
  void run(std::size_t needed, const Options& options, nb::object progress, Body body) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      throw Refusal(Refusal::Kind::kValue, "Indexer", "a call in progress",
                    "one call at a time (one Indexer per thread)");
    }
    reserve(needed);
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
  void reserve(std::size_t needed) {
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

/// What audits of both engines report, under the names of their C structures.
template <typename Found>
nb::dict audit_dict(const Found& found) {
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
  return dict;
}

inline nb::dict stats_dict(const dosa_stats& stats) {
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

}  // namespace dosa::python
