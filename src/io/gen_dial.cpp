// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <string>

#include "io/error.hpp"
#include "io/gen_draw.hpp"
#include "io/gen_exact.hpp"

namespace dosa::io {
namespace {

struct Request {
  std::size_t count;
  CounterRandom random;
  double a;
  double b;
};

using Values = std::vector<float>;

struct Row {
  DialValues text;
  int num_parameters;
  double least;   // smallest parameter allowed
  bool integers;  // parameters are whole numbers
  Values (*make)(const Request&);
};

/// One value per key, in key order. Fused operations are spelled out: what a compiler fuses of its
/// own accord differs between machines.
template <typename Function>
Values each(const Request& request, Function function) {
  Values values(request.count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(function(i));
  }
  return values;
}

/// `upper` keys get upper_value(j), then `middle` keys middle_value(j), the rest 1/2; shuffled.
template <typename Upper, typename Middle>
Values crowd(const Request& request, Upper upper_value, Middle middle_value) {
  Values values(request.count, 0.5F);
  const std::vector<std::uint32_t> order = shuffled(request.random, request.count);
  const auto upper = static_cast<double>(request.a);
  const auto middle = static_cast<double>(request.b);
  for (std::size_t j = 0; j < request.count; ++j) {
    const auto rank = static_cast<double>(j);
    if (rank < upper) {
      values[order[j]] = static_cast<float>(upper_value(rank));
    } else if (rank < upper + middle) {
      values[order[j]] = static_cast<float>(middle_value(rank - upper));
    }
  }
  return values;
}

Values make_uniform(const Request& request) {
  return each(request, [&](std::size_t i) { return unit(request.random, i); });
}

Values make_band(const Request& request) {
  return each(request, [&](std::size_t i) {
    return std::fma(request.b - request.a, double{unit(request.random, i)}, request.a);
  });
}

Values make_constant(const Request& request) {
  return each(request, [&](std::size_t) { return request.a; });
}

Values make_plateau(const Request& request) {
  return crowd(
      request, [](double) { return 2.0; }, [](double) { return 1.0; });
}

Values make_crowd(const Request& request) {
  return crowd(
      request, [](double j) { return std::fma(j, 1e-3, 2.0); },
      [](double j) { return std::fma(j, 6e-7, 1.0); });
}

Values make_spread(const Request& request) {
  const std::vector<std::uint32_t> order = shuffled(request.random, request.count);
  return each(request, [&](std::size_t i) {
    return std::fma(request.b, static_cast<double>(order[i]) / static_cast<double>(request.count),
                    request.a);
  });
}

Values make_ladder(const Request& request) {
  const auto rungs = static_cast<std::size_t>(request.a);
  return each(request, [&](std::size_t i) { return static_cast<double>(i % rungs) / request.a; });
}

Values make_levels(const Request& request) {
  const auto levels = static_cast<std::uint64_t>(request.a);
  return each(request, [&](std::size_t i) { return below(request.random, i, levels) / request.a; });
}

Values make_groups(const Request& request) {
  const auto width = static_cast<std::size_t>(request.a);
  return each(request, [&](std::size_t i) { return unit(request.random, i / width); });
}

Values make_lastbits(const Request& request) {
  return each(request, [&](std::size_t i) {
    return std::bit_cast<float>(0x3F900000U | below(request.random, i, 1U << 10));
  });
}

Values make_bf16(const Request& request) {
  constexpr std::size_t kTerms = 12;  // their sum less 6 has mean 0 and variance 1
  return each(request, [&](std::size_t i) {
    float sum = -6.0F;
    for (std::size_t term = 0; term < kTerms; ++term) {
      sum += unit(request.random, kTerms * i + term);
    }
    const auto bits = std::bit_cast<std::uint32_t>(std::fabs(sum));
    const std::uint32_t nearest_even = bits + 0x7fffU + ((bits >> 16) & 1U);
    return std::bit_cast<float>(nearest_even & 0xffff0000U);
  });
}

Values make_alternate(const Request& request) {
  return each(request, [&](std::size_t i) { return i % 2 == 0 ? request.a : request.b; });
}

Values make_subnormal(const Request& request) {
  return each(request, [](std::size_t i) { return static_cast<double>(i + 1) * 0x1p-149; });
}

constexpr double kAny = -HUGE_VAL;

const std::array<Row, 13> kRows = {{
    {{"uniform", "", "uniform in [0, 1)"}, 0, kAny, false, make_uniform},
    {{"band", "LO:HI", "uniform from LO to HI"}, 2, kAny, false, make_band},
    {{"constant", "V", "all V"}, 1, kAny, false, make_constant},
    {{"plateau", "A:T", "A keys at 2, T keys at 1, the rest at 1/2; shuffled"},
     2,
     0,
     true,
     make_plateau},
    {{"crowd", "A:T", "A keys from 2 in steps of 1e-3, T keys from 1 in steps of 6e-7, rest 1/2"},
     2,
     0,
     true,
     make_crowd},
    {{"spread", "LO:WIDTH", "LO + WIDTH i/N, shuffled"}, 2, kAny, false, make_spread},
    {{"ladder", "M", "(i mod M) / M"}, 1, 1, true, make_ladder},
    {{"levels", "M", "random multiples of 1/M below 1"}, 1, 1, true, make_levels},
    {{"groups", "G", "uniform in [0, 1), equal for each G keys in a row"}, 1, 1, true, make_groups},
    {{"lastbits", "", "1.125 with the last ten bits random"}, 0, kAny, false, make_lastbits},
    {{"bf16", "", "about |normal(0, 1)|, rounded to bf16"}, 0, kAny, false, make_bf16},
    {{"alternate", "A:B", "A at even keys, B at odd"}, 2, kAny, false, make_alternate},
    {{"subnormal", "", "(i + 1) 2^-149"}, 0, kAny, false, make_subnormal},
}};

std::vector<std::string_view> split(std::string_view spec) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t colon = spec.find(':');
    parts.push_back(spec.substr(0, colon));
    if (colon == std::string_view::npos) {
      return parts;
    }
    spec.remove_prefix(colon + 1);
  }
}

double parse_parameter(const Row& row, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  constexpr double kMostInteger = 0x1p32;
  if (!number || !std::isfinite(value) || value < row.least ||
      (row.integers && (value > kMostInteger || value != std::floor(value)))) {
    const std::string least = std::to_string(static_cast<int>(row.integers ? row.least : 0));
    throw Error("values " + printable(row.text.name), printable(text),
                row.integers ? "a whole number of at least " + least : "a number");
  }
  return value;
}

}  // namespace

const std::vector<DialValues>& dial_values() {
  static const std::vector<DialValues> kList = [] {
    std::vector<DialValues> list;
    list.reserve(kRows.size());
    for (const Row& row : kRows) {
      list.push_back(row.text);
    }
    return list;
  }();
  return kList;
}

std::vector<float> make_dial_values(std::string_view spec, std::int64_t num_keys,
                                    std::uint64_t seed) {
  const std::vector<std::string_view> parts = split(spec);
  constexpr std::uint64_t kStream = 100;  // apart from those of the shape
  std::string names;
  for (const Row& row : kRows) {
    if (row.text.name != parts[0]) {
      names.append(names.empty() ? "" : ", ").append(row.text.name);
      continue;
    }
    if (parts.size() != static_cast<std::size_t>(row.num_parameters) + 1) {
      throw Error("values", printable(spec),
                  std::string(row.text.name) + (row.num_parameters == 0 ? "" : ":") +
                      std::string(row.text.parameters));
    }
    Request request{static_cast<std::size_t>(num_keys), CounterRandom(seed).child(kStream), 0, 0};
    request.a = row.num_parameters > 0 ? parse_parameter(row, parts[1]) : 0;
    request.b = row.num_parameters > 1 ? parse_parameter(row, parts[2]) : 0;
    return row.make(request);
  }
  throw Error("values", printable(spec), "one of " + names);
}

}  // namespace dosa::io
