// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ostream>
#include <sstream>

namespace dosa::oracle {

namespace {

constexpr std::int32_t kPoisonId = 0x7fffffff;
constexpr std::uint32_t kPoisonScore = 0x7fabcdef;  // a NaN that no arithmetic makes
constexpr std::uint8_t kCanary = 0xa5;
constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kNanCode = 0x7f;

/// (rows, width) copied into rows of width + pad, the rest filled with something that shows.
template <typename T>
std::vector<T> padded(const std::vector<T>& values, std::int64_t rows, std::int64_t width, int pad,
                      T filler) {
  std::vector<T> result(static_cast<std::size_t>(rows * (width + pad)), filler);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(values.begin() + r * width, width, result.begin() + r * (width + pad));
  }
  return result;
}

/// Bytes between two guards, at a chosen distance from a cache line.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t misalignment, std::vector<std::uint8_t>& store)
      : bytes_(bytes), store_(store) {
    if (store_.size() < bytes + 4 * kGuard) store_.resize(bytes + 4 * kGuard, 0xcd);
    const auto address = reinterpret_cast<std::uintptr_t>(store_.data());
    offset_ = 2 * kGuard - address % kGuard + misalignment % kGuard;
    std::fill_n(data() - kGuard, kGuard, kCanary);
    std::fill_n(data() + bytes_, kGuard, kCanary);
  }

  [[nodiscard]] std::uint8_t* data() { return store_.data() + offset_; }

  [[nodiscard]] bool intact() {
    const auto whole = [](const std::uint8_t* from) {
      return std::all_of(from, from + kGuard, [](std::uint8_t x) { return x == kCanary; });
    };
    return whole(data() - kGuard) && whole(data() + bytes_);
  }

 private:
  std::size_t bytes_;
  std::size_t offset_ = 0;
  std::vector<std::uint8_t>& store_;
};

/// Kept between calls, so that each finds what another problem left behind.
std::vector<std::uint8_t>& workspace_store() {
  static thread_local std::vector<std::uint8_t> store;
  return store;
}

/// A (rows, width) output with guards around it and between its rows.
template <typename T>
class Output {
 public:
  Output(std::int64_t rows, std::int64_t width, int pad, T poison)
      : rows_(rows),
        width_(width),
        stride_(width + pad),
        poison_(poison),
        memory_(static_cast<std::size_t>(rows * stride_) * sizeof(T), 4, store_) {
    std::fill_n(data(), rows_ * stride_, poison_);
  }

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] std::int64_t stride() const { return stride_; }

  /// Whether nothing at all was written.
  [[nodiscard]] bool untouched() {
    return memory_.intact() && std::all_of(data(), data() + rows_ * stride_, [this](T x) {
             return std::memcmp(&x, &poison_, sizeof x) == 0;
           });
  }

  [[nodiscard]] std::vector<T> take(const std::string& name, std::string& damage) {
    std::vector<T> values;
    if (!memory_.intact()) damage += name + ": written outside; ";
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t j = 0; j < stride_; ++j) {
        const T x = data()[r * stride_ + j];
        const bool poisoned = std::memcmp(&x, &poison_, sizeof x) == 0;
        if (j < width_) values.push_back(x);
        if (poisoned == (j < width_) && damage.empty()) {
          damage += name + ": row " + std::to_string(r) + " slot " + std::to_string(j) +
                    (poisoned ? " was not written; " : " lies between rows and was written; ");
        }
      }
    }
    return values;
  }

 private:
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t stride_;
  T poison_;
  std::vector<std::uint8_t> store_;
  Guarded memory_;
};

}  // namespace

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

Arguments::Arguments(const Problem& p, const Request& request, const Layout& layout)
    : q_(padded(p.q, p.num_queries, static_cast<std::int64_t>(p.num_heads) * p.head_dim, layout.q,
                kNanCode)),
      k_(padded(p.k, p.num_keys, p.head_dim, layout.k, kNanCode)),
      k_scale_(p.k_scale),
      weights_(padded(p.weights, p.num_queries, p.num_heads, layout.weights,
                      std::numeric_limits<float>::quiet_NaN())),
      start_(p.start),
      end_(p.end),
      offset_(request.index_offset),
      table_(request.page_table) {
  const auto or_null = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
  problem_.struct_size = sizeof problem_;
  problem_.num_queries = p.num_queries;
  problem_.num_keys = p.num_keys;
  problem_.num_heads = p.num_heads;
  problem_.head_dim = p.head_dim;
  problem_.topk = p.topk;
  problem_.page_size = request.page_size;
  problem_.q = q_.data();
  problem_.q_stride = static_cast<std::int64_t>(p.num_heads) * p.head_dim + layout.q;
  problem_.k = k_.data();
  problem_.k_stride = p.head_dim + layout.k;
  problem_.k_scale = k_scale_.data();
  problem_.weights = weights_.data();
  problem_.weights_stride = p.num_heads + layout.weights;
  problem_.k_start = or_null(start_);
  problem_.k_end = or_null(end_);
  problem_.index_offset = or_null(offset_);
  problem_.page_table = or_null(table_);
  problem_.page_table_stride = request.one_table ? 0 : request.page_table_pages;
  problem_.page_table_pages = request.page_table_pages;
}

std::uint64_t Arguments::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&hash](const auto& values) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(values[0]); ++i) {
      hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
    }
  };
  add(q_);
  add(k_);
  add(k_scale_);
  add(weights_);
  add(start_);
  add(end_);
  add(offset_);
  add(table_);
  return hash;
}

dosa_options make_options(const Request& request) {
  dosa_options options{};
  dosa_options_init(&options, sizeof options);
  options.index_form = static_cast<std::int32_t>(request.form);
  options.order = static_cast<std::int32_t>(request.order);
  options.forced_first = request.forced_first;
  options.forced_last = request.forced_last;
  return options;
}

std::ostream& operator<<(std::ostream& out, const dosa_options& o) {
  return out << "options{mode=" << o.mode << " threshold=" << o.threshold
             << " form=" << o.index_form << " order=" << o.order << " heads=" << o.heads
             << " threads=" << o.threads << " forced=" << o.forced_first << "," << o.forced_last
             << " retain=" << o.retain << " projection=" << o.projection
             << " allowance=" << o.allowance << "/" << o.allowance_groups
             << " aggregate=" << o.aggregate << " statistics=" << o.statistics
             << " limit=" << o.workspace_limit << "}";
}

std::string describe(const dosa_options& options) {
  std::ostringstream text;
  text << options;
  return text.str();
}

Outcome run(const Problem& problem, const Request& request, const dosa_options& options,
            const Layout& layout) {
  Outcome outcome;
  Arguments arguments(problem, request, layout);
  const std::uint64_t before = arguments.hash();
  std::size_t bytes = 0;
  outcome.status = dosa_workspace_bytes(&arguments.get(), &options, &bytes);
  outcome.error = dosa_last_error();
  if (outcome.status != DOSA_OK) return outcome;

  Output<std::int32_t> ids(problem.num_queries, problem.topk, layout.indices, kPoisonId);
  Output<float> scores(problem.num_queries, problem.topk, layout.scores,
                       std::bit_cast<float>(kPoisonScore));
  outcome.rows.resize(static_cast<std::size_t>(problem.num_queries));
  outcome.stats.struct_size = sizeof outcome.stats;
  dosa_output output{};
  output.struct_size = sizeof output;
  output.indices = ids.data();
  output.indices_stride = ids.stride();
  output.scores = scores.data();
  output.scores_stride = scores.stride();
  output.rows = outcome.rows.data();
  output.stats = &outcome.stats;

  Guarded workspace(bytes, static_cast<std::size_t>(layout.workspace), workspace_store());
  if (bytes > 0) {
    const dosa_status refused =
        dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes - 1);
    if (refused != DOSA_WORKSPACE_TOO_SMALL) outcome.damage += "one byte less was accepted; ";
    if (!ids.untouched() || !scores.untouched()) outcome.damage += "a refused call wrote output; ";
  }
  outcome.status = dosa_topk(&arguments.get(), &options, &output, workspace.data(), bytes);
  outcome.error = dosa_last_error();
  if (!workspace.intact()) outcome.damage += "written outside the workspace; ";
  if (arguments.hash() != before) outcome.damage += "an input was changed; ";
  if (outcome.status != DOSA_OK) return outcome;
  outcome.ids = ids.take("indices", outcome.damage);
  outcome.scores = scores.take("scores", outcome.damage);
  return outcome;
}

Outcome run_scores(const Problem& problem, const dosa_options& options) {
  Outcome outcome;
  Arguments arguments(problem, {});
  std::size_t bytes = 0;
  outcome.status = dosa_workspace_bytes(&arguments.get(), &options, &bytes);
  if (outcome.status == DOSA_OK) {
    Output<float> scores(problem.num_queries, problem.num_keys, 3,
                         std::bit_cast<float>(kPoisonScore));
    Guarded workspace(bytes, 0, workspace_store());
    outcome.status = dosa_scores(&arguments.get(), &options, 0, problem.num_queries, scores.data(),
                                 scores.stride(), workspace.data(), bytes);
    if (!workspace.intact()) outcome.damage += "written outside the workspace; ";
    if (outcome.status == DOSA_OK) outcome.scores = scores.take("scores", outcome.damage);
  }
  outcome.error = dosa_last_error();
  return outcome;
}

Bounds run_bounds(const Problem& problem, const dosa_options& options, std::int64_t row) {
  Bounds result;
  Arguments arguments(problem, {});
  result.certificate.struct_size = sizeof result.certificate;
  std::size_t bytes = 0;
  result.status = dosa_workspace_bytes(&arguments.get(), &options, &bytes);
  if (result.status == DOSA_OK) {
    result.bounds.assign(static_cast<std::size_t>(problem.num_keys), 0.0F);
    Guarded workspace(bytes, 0, workspace_store());
    result.status = dosa_bounds(&arguments.get(), &options, row, &result.certificate,
                                result.bounds.data(), workspace.data(), bytes);
  }
  result.error = dosa_last_error();
  return result;
}

std::vector<std::int32_t> ids_of(const Outcome& outcome, std::int64_t row, int topk) {
  const auto first = outcome.ids.begin() + row * topk;
  return {first, first + topk};
}

std::string difference(const Problem& problem, const std::vector<Row>& expected,
                       const Outcome& outcome) {
  std::ostringstream text;
  if (outcome.status != DOSA_OK) {
    text << dosa_status_text(outcome.status) << ": " << outcome.error;
    return text.str();
  }
  if (!outcome.damage.empty()) return outcome.damage;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    for (std::size_t j = 0; j < expected[r].ids.size(); ++j) {
      const std::size_t at = r * static_cast<std::size_t>(problem.topk) + j;
      const bool equal =
          expected[r].ids[j] == outcome.ids[at] && same(expected[r].scores[j], outcome.scores[at]);
      if (equal) continue;
      text.precision(9);
      text << "row " << r << " slot " << j << ": expected id " << expected[r].ids[j] << " score "
           << expected[r].scores[j] << ", got id " << outcome.ids[at] << " score "
           << outcome.scores[at];
      return text.str();
    }
  }
  return {};
}

}  // namespace dosa::oracle
