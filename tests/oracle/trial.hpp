// SPDX-License-Identifier: Apache-2.0
//
// A random problem with random options, as rapidcheck draws and shrinks it: towards no rows, one
// head, 16 coordinates, zeros everywhere and default options.
#pragma once

#include <ostream>
#include <string>

#include "generate.hpp"
#include "harness.hpp"
#include "properties.hpp"

namespace dosa::oracle {

struct Limits {
  int queries = 6;
  int heads = 128;
  int sixteenths = 16;
  int keys = 3000;
  int topk = 600;
};

/// What to ask for, in small numbers that shrink to 0.
struct Variant {
  int mode = 0;
  int threshold = 0;
  int form = 0;
  int order = 0;
  int forced_first = 0;
  int forced_last = 0;
  int heads = 0;  // r; above H it means H; 0: chosen by the engine
  int threads = 1;
  int retain = 0;
  int no_projection = 0;
  int allowance = 0;
  int groups = 0;  // 2, 4, 8
  int aggregate = 0;
  int statistics = 0;
  int padding = 0;  // elements between rows; also moves the workspace
  int page_size = 1;
};

inline std::ostream& operator<<(std::ostream& out, const Variant& v) {
  return out << "Variant{mode=" << v.mode << " threshold=" << v.threshold << " heads=" << v.heads
             << " threads=" << v.threads << " aggregate=" << v.aggregate << "}";
}

struct Trial {
  Recipe recipe;
  Variant variant;
};

inline dosa_options options_of(const Trial& trial, const Request& request) {
  const Variant& v = trial.variant;
  dosa_options o = make_options(request);
  o.mode = v.mode;
  o.threshold = v.threshold;
  o.heads = v.heads % (trial.recipe.num_heads + 1);
  o.threads = v.threads;
  o.retain = v.retain;
  o.projection = 1 - v.no_projection;
  o.allowance = v.allowance;
  o.allowance_groups = 2 << v.groups;
  while (16 * trial.recipe.sixteenths % (8 * o.allowance_groups) != 0) o.allowance_groups /= 2;
  o.aggregate = v.aggregate;
  o.statistics = v.statistics;
  return o;
}

inline Request request_of(const Trial& trial, const Problem& problem) {
  const Variant& v = trial.variant;
  Random random(trial.recipe.seed + 77);
  Request r;
  r.form = static_cast<IndexForm>(v.form);
  r.order = static_cast<Order>(v.order);
  r.forced_first = v.forced_first;
  r.forced_last = v.forced_last;
  r.page_size = v.page_size;
  r.one_table = v.padding % 2 == 1;
  r.page_table_pages = problem.num_keys / v.page_size + 1;
  const std::int64_t tables = r.one_table ? 1 : problem.num_queries;
  for (std::int64_t i = 0; i < problem.num_queries; ++i) {
    r.index_offset.push_back(static_cast<std::int32_t>(random.between(-1000000, 1000000)));
  }
  for (std::int64_t i = 0; i < tables * r.page_table_pages; ++i) {
    r.page_table.push_back(static_cast<std::int32_t>(random.below(1 << 20)));
  }
  return r;
}

inline Layout layout_of(const Trial& trial) {
  const int p = trial.variant.padding;
  return {p, 3 * p % 7, p % 5, 2 * p % 5, p % 3, 5 * p};
}

inline std::ostream& operator<<(std::ostream& out, const Trial& trial) {
  const Problem empty;
  Request request;
  request.form = static_cast<IndexForm>(trial.variant.form);
  request.order = static_cast<Order>(trial.variant.order);
  request.forced_first = trial.variant.forced_first;
  request.forced_last = trial.variant.forced_last;
  return out << trial.recipe << " " << options_of(trial, request)
             << " padding=" << trial.variant.padding << " page_size=" << trial.variant.page_size;
}

/// Draws from [first, first + count), shrinking towards first; independent of rapidcheck's size.
inline rc::Gen<int> any_of(int count, int first = 0) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(first, first + count));
}

template <typename Enum>
rc::Gen<Enum> any_kind() {
  return rc::gen::map(any_of(static_cast<int>(Enum::kCount)),
                      [](int i) { return static_cast<Enum>(i); });
}

inline rc::Gen<Recipe> recipes(const Limits& limits) {
  using rc::gen::inRange;
  using rc::gen::set;
  const auto rarely = rc::gen::map(any_of(8), [](int i) { return i == 7 ? 2 : 0; });
  return rc::gen::build<Recipe>(
      set(&Recipe::kind, any_kind<Kind>()), set(&Recipe::weights, any_kind<Weights>()),
      set(&Recipe::scales, any_kind<Scales>()), set(&Recipe::windows, any_kind<Windows>()),
      set(&Recipe::num_queries, any_of(limits.queries + 1)),
      set(&Recipe::num_heads, inRange(1, limits.heads + 1)),
      set(&Recipe::sixteenths, inRange(1, limits.sixteenths + 1)),
      set(&Recipe::num_keys, inRange(0, limits.keys + 1)),
      set(&Recipe::topk, inRange(1, limits.topk + 1)), set(&Recipe::nan_codes, rarely),
      set(&Recipe::seed,
          rc::gen::map(any_of(1 << 20), [](int i) { return static_cast<std::uint64_t>(i); })));
}

inline rc::Gen<Variant> variants() {
  using rc::gen::set;
  const auto forced = rc::gen::map(any_of(12), [](int i) { return i < 8 ? 0 : i * i - 63; });
  return rc::gen::build<Variant>(
      set(&Variant::mode, any_of(5)), set(&Variant::threshold, any_of(2)),
      set(&Variant::form, any_of(4)), set(&Variant::order, any_of(2)),
      set(&Variant::forced_first, forced), set(&Variant::forced_last, forced),
      set(&Variant::heads, any_of(129)), set(&Variant::threads, any_of(4, 1)),
      set(&Variant::retain, any_of(2)), set(&Variant::no_projection, any_of(2)),
      set(&Variant::allowance, any_of(4)), set(&Variant::groups, any_of(3)),
      set(&Variant::aggregate, any_of(5)), set(&Variant::statistics, any_of(3)),
      set(&Variant::padding, any_of(6)), set(&Variant::page_size, any_of(70, 1)));
}

inline rc::Gen<Trial> trials(const Limits& limits) {
  return rc::gen::build<Trial>(rc::gen::set(&Trial::recipe, recipes(limits)),
                               rc::gen::set(&Trial::variant, variants()));
}

}  // namespace dosa::oracle
