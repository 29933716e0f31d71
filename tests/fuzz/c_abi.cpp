// SPDX-License-Identifier: Apache-2.0
// Calls of the C interface with drawn problems and options, of which up to three fields are then
// overwritten. dosa.h says which calls are refused: those must be, with one line, and nothing
// written; all others must answer as the oracle does.
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "c_abi_rules.hpp"
#include "dosa/dosa.h"
#include "oracle/harness.hpp"

namespace {

using dosa::fuzz::allows_inputs;
using dosa::fuzz::allows_output;
using dosa::fuzz::allows_shape;
using dosa::fuzz::Bytes;
using dosa::fuzz::kLeastLimit;
using dosa::fuzz::require;
namespace oracle = dosa::oracle;

constexpr std::int32_t kUntouched = 0x7ffffff0;
constexpr float kUntouchedScore = -1234.5F;

/// A call and the memory it needs.
struct Call {
  Call(const oracle::Problem& source, const oracle::Request& request, const oracle::Layout& layout,
       const dosa_options& chosen)
      : arguments(source, request, layout),
        problem(arguments.get()),
        options(chosen),
        held(problem),
        rows(problem.num_queries),
        keys(problem.num_keys) {
    output.struct_size = sizeof output;
    output.indices_stride = problem.topk + layout.indices;
    output.scores_stride = problem.topk + layout.scores;
    ids.assign(static_cast<std::size_t>(rows * output.indices_stride) + 1, kUntouched);
    scores.assign(static_cast<std::size_t>(rows * output.scores_stride) + 1, kUntouchedScore);
    output.indices = ids.data();
    output.scores = scores.data();
    output.stats = &stats;
    stats.struct_size = sizeof stats;
  }

  oracle::Arguments arguments;
  dosa_problem problem;
  dosa_options options;
  dosa_problem held;  // what the arrays hold, whatever the fields of `problem` say later
  std::int64_t rows, keys;
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
  dosa_stats stats{};
  dosa_output output{};
  std::vector<std::uint8_t> workspace;
  std::size_t bytes = 0;  // as passed
  bool no_workspace = false;
};

std::int32_t odd_int(Bytes& bytes) {
  return bytes.pick({-1,
                     0,
                     1,
                     2,
                     3,
                     4,
                     5,
                     8,
                     15,
                     16,
                     17,
                     32,
                     127,
                     128,
                     129,
                     255,
                     256,
                     257,
                     272,
                     8191,
                     8192,
                     8193,
                     1024,
                     1025,
                     std::numeric_limits<std::int32_t>::max(),
                     std::numeric_limits<std::int32_t>::min()});
}

std::int64_t odd_long(Bytes& bytes) {
  if (bytes.once_in(2)) return odd_int(bytes);
  return bytes.pick({std::int64_t{1} << 31, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 40,
                     (std::int64_t{1} << 40) + 1, std::numeric_limits<std::int64_t>::max(),
                     std::numeric_limits<std::int64_t>::min()});
}

std::size_t odd_size(Bytes& bytes, std::size_t right) {
  return bytes.pick({std::size_t{0}, right - 1, right + 1, right / 2, ~std::size_t{0}});
}

/// An extent may only shrink, or leave the range of the contract: more rows than there are cannot
/// be told by the library.
void spoil_extent(Bytes& bytes, std::int64_t& extent, std::int64_t held, std::int64_t most) {
  const std::int64_t value = odd_long(bytes);
  if (value <= held || value > most) extent = value;
}

/// A stride may only shrink, unless there is but one row, where it does not matter.
void spoil_stride(Bytes& bytes, std::int64_t& stride, std::int64_t rows) {
  const std::int64_t value = odd_long(bytes);
  if (value <= stride || rows <= 1) stride = value;
}

template <typename Element>
void spoil_pointer(Bytes& bytes, Element*& pointer) {
  // One byte further would be read to the end and beyond; codes may lie anywhere, so are not moved.
  const bool moved = sizeof(Element) > 1 && bytes.once_in(2);
  pointer =
      moved ? reinterpret_cast<Element*>(reinterpret_cast<std::uintptr_t>(pointer) + 1) : nullptr;
}

using Spoil = std::function<void(Bytes&, Call&)>;

Spoil option(std::int32_t dosa_options::*field) {
  return [field](Bytes& bytes, Call& call) { call.options.*field = odd_int(bytes); };
}

Spoil shape(std::int32_t dosa_problem::*field) {
  return [field](Bytes& bytes, Call& call) { call.problem.*field = odd_int(bytes); };
}

const std::vector<Spoil>& spoils() {
  static const std::vector<Spoil> kSpoils = {
      option(&dosa_options::mode),
      option(&dosa_options::threshold),
      option(&dosa_options::index_form),
      option(&dosa_options::order),
      option(&dosa_options::heads),
      option(&dosa_options::forced_first),
      option(&dosa_options::forced_last),
      option(&dosa_options::retain),
      option(&dosa_options::projection),
      option(&dosa_options::allowance),
      option(&dosa_options::allowance_groups),
      option(&dosa_options::aggregate),
      option(&dosa_options::statistics),
      option(&dosa_options::score_model),
      // Threads are started as asked: hundreds of them are slow and show nothing.
      [](Bytes& b, Call& c) {
        c.options.threads = b.pick({-1, 0, 5, 8, 1025, 0x7fffffff});
      },
      [](Bytes& b, Call& c) {
        c.options.workspace_limit =
            b.pick({std::uint64_t{0}, kLeastLimit - 1, kLeastLimit, ~std::uint64_t{0}});
      },
      shape(&dosa_problem::num_heads),
      shape(&dosa_problem::head_dim),
      shape(&dosa_problem::topk),
      [](Bytes& b,
         Call& c) {  // larger pages need fewer entries, smaller ones more: both are checked
        c.problem.page_size = odd_int(b);
      },
      [](Bytes& b, Call& c) {
        spoil_extent(b, c.problem.num_queries, c.rows, std::int64_t{1} << 40);
      },
      [](Bytes& b, Call& c) {
        spoil_extent(b, c.problem.num_keys, c.keys, std::numeric_limits<std::int32_t>::max());
      },
      [](Bytes& b, Call& c) { spoil_stride(b, c.problem.q_stride, c.rows); },
      [](Bytes& b, Call& c) { spoil_stride(b, c.problem.k_stride, c.keys); },
      [](Bytes& b, Call& c) { spoil_stride(b, c.problem.weights_stride, c.rows); },
      [](Bytes& b, Call& c) { spoil_stride(b, c.output.indices_stride, c.rows); },
      [](Bytes& b, Call& c) { spoil_stride(b, c.output.scores_stride, c.rows); },
      [](Bytes& b, Call& c) {
        c.problem.page_table_stride = b.pick<std::int64_t>({-1, 0});
      },
      [](Bytes& b, Call& c) {
        const std::int64_t value = odd_long(b);
        if (value < c.problem.page_table_pages) c.problem.page_table_pages = value;
      },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.q); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.k); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.k_scale); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.weights); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.k_start); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.k_end); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.index_offset); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.problem.page_table); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.output.indices); },
      [](Bytes& b, Call& c) { spoil_pointer(b, c.output.scores); },
      [](Bytes&, Call& c) { c.output.stats = nullptr; },
      [](Bytes& b, Call& c) { c.problem.struct_size = odd_size(b, sizeof c.problem); },
      [](Bytes& b, Call& c) { c.options.struct_size = odd_size(b, sizeof c.options); },
      [](Bytes& b, Call& c) { c.output.struct_size = odd_size(b, sizeof c.output); },
      [](Bytes& b, Call& c) { c.stats.struct_size = odd_size(b, sizeof c.stats); },
      [](Bytes&, Call& c) { c.no_workspace = true; },
  };
  return kSpoils;
}

/// Whether a row of every array is within its memory: a stride of a single row may be anything, and
/// then the library cannot know.
bool fits(const Call& call) {
  const dosa_problem& p = call.problem;
  const std::int64_t cells = static_cast<std::int64_t>(call.ids.size()) - 1;
  const std::int64_t scores = static_cast<std::int64_t>(call.scores.size()) - 1;
  const bool inputs = static_cast<std::int64_t>(p.num_heads) * p.head_dim <= call.held.q_stride &&
                      p.num_heads <= call.held.weights_stride && p.head_dim <= call.held.k_stride;
  return inputs && (call.rows == 0 || (p.topk <= cells && p.topk <= scores));
}

/// The rows of `values` at `stride`, one after the other; none where there are no values.
template <typename Element>
std::vector<Element> packed(const Element* values, std::int64_t rows, std::int64_t width,
                            std::int64_t stride) {
  std::vector<Element> all;
  for (std::int64_t row = 0; row < rows && values != nullptr; ++row) {
    all.insert(all.end(), values + row * stride, values + row * stride + width);
  }
  return all;
}

/// The problem as the fields of the call describe it.
oracle::Problem problem_of(const dosa_problem& p) {
  oracle::Problem problem;
  problem.num_queries = p.num_queries;
  problem.num_keys = p.num_keys;
  problem.num_heads = p.num_heads;
  problem.head_dim = p.head_dim;
  problem.topk = p.topk;
  problem.q =
      packed(p.q, p.num_queries, static_cast<std::int64_t>(p.num_heads) * p.head_dim, p.q_stride);
  problem.k = packed(p.k, p.num_keys, p.head_dim, p.k_stride);
  problem.k_scale = packed(p.k_scale, p.num_keys, 1, 1);
  problem.weights = packed(p.weights, p.num_queries, p.num_heads, p.weights_stride);
  problem.start = packed(p.k_start, p.num_queries, 1, 1);
  problem.end = packed(p.k_end, p.num_queries, 1, 1);
  return problem;
}

oracle::Request request_of(const dosa_problem& p, const dosa_options& o) {
  oracle::Request request;
  request.form = static_cast<oracle::IndexForm>(o.index_form);
  request.order = static_cast<oracle::Order>(o.order);
  request.forced_first = o.forced_first;
  request.forced_last = o.forced_last;
  request.index_offset = packed(p.index_offset, p.num_queries, 1, 1);
  if (o.index_form != DOSA_INDEX_SLOT) return request;
  request.page_size = p.page_size;
  request.page_table_pages = std::max<std::int64_t>(0, p.page_table_pages);
  request.one_table = p.page_table_stride == 0;
  request.page_table = packed(p.page_table, request.one_table ? 1 : p.num_queries,
                              request.page_table_pages, p.page_table_stride);
  return request;
}

bool untouched(const Call& call) {
  for (const std::int32_t id : call.ids) {
    if (id != kUntouched) return false;
  }
  for (const float score : call.scores) {
    if (score != kUntouchedScore) return false;
  }
  return true;
}

void check_refusal(const Call& call) {
  require(untouched(call));
  const std::string line = dosa_last_error();
  require(!line.empty());
  for (const char c : line) require(c >= ' ' && c <= '~');
}

void check_answer(const Call& call) {
  const dosa_problem& p = call.problem;
  const oracle::Problem problem = problem_of(p);
  const std::vector<oracle::Row> expected = oracle::top_k(problem, request_of(p, call.options));
  for (std::int64_t row = 0; row < p.num_queries; ++row) {
    const oracle::Row& right = expected[static_cast<std::size_t>(row)];
    for (std::int64_t n = 0; n < p.topk; ++n) {
      const auto at = static_cast<std::size_t>(n);
      require(call.output.indices[row * call.output.indices_stride + n] == right.ids[at]);
      if (call.output.scores == nullptr) continue;
      require(
          oracle::same(call.output.scores[row * call.output.scores_stride + n], right.scores[at]));
    }
  }
  if (p.num_queries == 0) require(untouched(call));
  if (call.output.stats != nullptr) require(call.stats.rows == p.num_queries);
}

/// dosa_scores, dosa_bounds and dosa_verify on a call that is allowed.
void check_others(Bytes& bytes, Call& call) {
  const dosa_problem& p = call.problem;
  dosa_verification report{};
  report.struct_size = sizeof report;
  require(dosa_verify(&p, &call.options, &report) == DOSA_OK);
  require(report.violations == 0 && report.rows_different == 0);
  if (p.num_queries == 0 || p.num_keys == 0) return;
  const std::int64_t row = bytes.between(0, p.num_queries - 1);
  std::vector<float> scores(static_cast<std::size_t>(p.num_keys), kUntouchedScore);
  require(dosa_scores(&p, &call.options, row, row + 1, scores.data(), p.num_keys,
                      call.workspace.data(), call.bytes) == DOSA_OK);
  const oracle::Problem problem = problem_of(p);
  const std::vector<float> expected = oracle::row_scores(problem, row);
  const oracle::Window visible = oracle::window(problem, row);
  for (std::int64_t i = 0; i < visible.length(); ++i) {
    require(oracle::same(scores[static_cast<std::size_t>(visible.begin + i)],
                         expected[static_cast<std::size_t>(i)]));
  }
  if (call.options.mode == DOSA_MODE_BASE || call.options.mode == DOSA_MODE_FULL) return;
  std::vector<float> bounds(scores.size());
  require(dosa_bounds(&p, &call.options, row, nullptr, bounds.data(), call.workspace.data(),
                      call.bytes) == DOSA_OK);
  for (std::int64_t i = 0; i < visible.length(); ++i) {
    require(!(bounds[static_cast<std::size_t>(visible.begin + i)] <
              expected[static_cast<std::size_t>(i)]));
  }
}

void check_call(Bytes& bytes, Call& call) {
  const bool shape_allowed = allows_shape(call.problem, call.options);
  std::size_t needed = 0;
  const dosa_status sized = dosa_workspace_bytes(&call.problem, &call.options, &needed);
  require((sized == DOSA_OK) == shape_allowed);
  if (sized == DOSA_OK) require(needed <= call.options.workspace_limit);
  const std::size_t missing = bytes.once_in(4) ? 1 + static_cast<std::size_t>(bytes.byte()) : 0;
  call.workspace.assign(needed, bytes.byte());
  call.bytes = needed - std::min(needed, missing);
  void* workspace = call.no_workspace ? nullptr : static_cast<void*>(call.workspace.data());
  const dosa_status status =
      dosa_topk(&call.problem, &call.options, &call.output, workspace, call.bytes);
  const bool allowed = shape_allowed && allows_inputs(call.problem, call.options) &&
                       allows_output(call.problem, call.output) && !call.no_workspace;
  if (!allowed) {
    require(status == DOSA_INVALID_ARGUMENT);
    return check_refusal(call);
  }
  require(status == (missing == 0 ? DOSA_OK : DOSA_WORKSPACE_TOO_SMALL));
  if (status != DOSA_OK) return check_refusal(call);
  check_answer(call);
  check_others(bytes, call);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const auto most = bytes.pick<dosa::fuzz::Extents>(
      {{4, 5, 2, 60, 30}, {4, 5, 2, 60, 30}, {5, 20, 5, 300, 70}, {5, 3, 1, 4500, 90}});
  const oracle::Problem problem = oracle::make_problem(draw_recipe(bytes, most));
  const oracle::Request request = draw_request(bytes, problem);
  const dosa_options options = draw_options(bytes, problem.num_heads, problem.head_dim, request);
  const int pad = bytes.pick({0, 0, 1, 3, 16, 80});
  Call call(problem, request, {pad, pad, pad, pad, pad, pad}, options);
  const int count = static_cast<int>(bytes.between(0, 3));
  for (int n = 0; n < count; ++n) {
    const auto last = static_cast<std::int64_t>(spoils().size()) - 1;
    spoils()[static_cast<std::size_t>(bytes.between(0, last))](bytes, call);
  }
  const bool wide = call.problem.q_stride > call.held.q_stride ||
                    call.problem.k_stride > call.held.k_stride ||
                    call.problem.weights_stride > call.held.weights_stride ||
                    call.output.indices_stride > call.held.topk + pad ||
                    call.output.scores_stride > call.held.topk + pad;
  if (!wide || fits(call)) check_call(bytes, call);
  return 0;
}
