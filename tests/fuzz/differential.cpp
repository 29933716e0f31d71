// SPDX-License-Identifier: Apache-2.0
// One drawn problem answered in many ways: modes, options, threads, instruction sets, rows in one
// call, in pieces and alone. All ids and scores are the oracle's. A difference is made small and
// written to difference.safetensors, which `dosa verify` runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "oracle/harness.hpp"
#include "shrink.hpp"
#include "unit/contract/instruction_sets.hpp"

namespace {

using dosa::fuzz::Bytes;
namespace oracle = dosa::oracle;

/// One way to answer a problem.
struct Way {
  dosa_options options{};
  std::int64_t set = 0;    // instruction set
  std::int64_t chunk = 1;  // rows per call
};

/// What is different from the oracle; empty where nothing is.
std::string difference_of(const oracle::Problem& problem, const oracle::Request& request,
                          const std::vector<oracle::Row>& expected, const Way& way) {
  const dosa::test::UseInstructionSet use(way.set);
  for (std::int64_t first = 0; first < problem.num_queries; first += way.chunk) {
    const std::int64_t last = std::min(first + way.chunk, problem.num_queries);
    oracle::Problem part = dosa::fuzz::without_rows(problem, last, problem.num_queries);
    part = dosa::fuzz::without_rows(part, 0, first);
    const std::vector<oracle::Row> rows(expected.begin() + first, expected.begin() + last);
    const std::string found =
        oracle::difference(part, rows, oracle::run(part, request, way.options));
    if (!found.empty()) return found;
  }
  return {};
}

/// The request without what needs an array per row: it does not change which keys are selected.
oracle::Request plain_request(Bytes& bytes) {
  oracle::Request request;
  request.form = bytes.once_in(2) ? oracle::IndexForm::kRelative : oracle::IndexForm::kAbsolute;
  request.order = static_cast<oracle::Order>(bytes.between(0, 1));
  request.forced_first = bytes.once_in(4) ? bytes.pick({1, 3, 70}) : 0;
  request.forced_last = bytes.once_in(4) ? bytes.pick({1, 2, 65}) : 0;
  return request;
}

Way draw_way(Bytes& bytes, const oracle::Problem& problem, const oracle::Request& request) {
  const std::vector<std::int64_t>& sets = dosa::test::instruction_sets();
  Way way;
  way.options = draw_options(bytes, problem.num_heads, problem.head_dim, request);
  const auto last = static_cast<std::int64_t>(sets.size()) - 1;
  way.set = sets[static_cast<std::size_t>(bytes.between(0, last))];
  way.chunk =
      bytes.once_in(2) ? bytes.between(1, 5) : std::max<std::int64_t>(1, problem.num_queries);
  return way;
}

/// Options that also fit a problem with fewer heads and coordinates.
dosa_options fitted(dosa_options options, const oracle::Problem& problem) {
  options.heads = std::min(options.heads, problem.num_heads);
  while (problem.head_dim % (8 * options.allowance_groups) != 0) options.allowance_groups /= 2;
  return options;
}

[[noreturn]] void report(const oracle::Problem& problem, const oracle::Request& request,
                         const Way& way, const std::string& found) {
  std::fprintf(stderr, "%s\n%s, rows in calls of %lld\n", found.c_str(),
               oracle::describe(way.options).c_str(), static_cast<long long>(way.chunk));
  const auto shows = [&](const oracle::Problem& smaller) {
    Way same = way;
    same.options = fitted(way.options, smaller);
    return !difference_of(smaller, request, oracle::top_k(smaller, request), same).empty();
  };
  constexpr int kTries = 2000;
  const oracle::Problem small = dosa::fuzz::shrink(problem, shows, kTries);
  const std::string command =
      dosa::fuzz::write_trace(small, fitted(way.options, small), "difference.safetensors");
  std::fprintf(stderr, "%lld rows, %lld keys, %d heads of %d are left; to see it:\n  %s\n",
               static_cast<long long>(small.num_queries), static_cast<long long>(small.num_keys),
               small.num_heads, small.head_dim, command.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const auto most = bytes.pick<dosa::fuzz::Extents>(
      {{5, 5, 2, 90, 40}, {5, 5, 2, 90, 40}, {9, 34, 8, 400, 90}, {6, 4, 1, 4600, 100}});
  const oracle::Problem problem = oracle::make_problem(draw_recipe(bytes, most));
  const oracle::Request request = plain_request(bytes);
  const std::vector<oracle::Row> expected = oracle::top_k(problem, request);
  const int ways = static_cast<int>(bytes.between(2, 6));
  for (int n = 0; n < ways; ++n) {
    const Way way = draw_way(bytes, problem, request);
    const std::string found = difference_of(problem, request, expected, way);
    if (!found.empty()) report(problem, request, way, found);
  }
  return 0;
}
