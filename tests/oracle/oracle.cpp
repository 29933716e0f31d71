// SPDX-License-Identifier: Apache-2.0
#include "oracle.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace dosa::oracle {

namespace {
constexpr std::size_t kMaxHeads = 128;
}

E4m3 decode_e4m3(std::uint8_t code) {
  const int mantissa = code & 7;
  const int exponent = (code >> 3) & 15;
  if (exponent == 15 && mantissa == 7) return {0, true};
  // Subnormal: mantissa/8 * 2^-6. Normal: (1 + mantissa/8) * 2^(exponent-7). Both times 2^9.
  const int magnitude = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
  return {(code & 0x80) != 0 ? -magnitude : magnitude, false};
}

float round_units(std::int64_t units) {
  const bool negative = units < 0;
  std::uint64_t magnitude =
      negative ? 0 - static_cast<std::uint64_t>(units) : static_cast<std::uint64_t>(units);
  int exponent = -18;
  std::uint64_t lost = 0;  // the bits shifted out, kept left-aligned below the last place
  while (magnitude >= (std::uint64_t{1} << 24)) {
    lost = (lost >> 1) | ((lost & 1) | ((magnitude & 1) << 63));
    magnitude >>= 1;
    ++exponent;
  }
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  if (lost > kHalf || (lost == kHalf && (magnitude & 1) != 0)) ++magnitude;
  const float value = std::ldexp(static_cast<float>(magnitude), exponent);
  return negative ? -value : value;
}

Vector decode(const std::uint8_t* codes, int head_dim) {
  Vector v;
  for (int d = 0; d < head_dim; ++d) {
    const E4m3 x = decode_e4m3(codes[d]);
    v.units.push_back(x.units);
    v.nan = v.nan || x.nan;
  }
  return v;
}

std::int64_t exact_dot(const Vector& a, const Vector& b) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < a.units.size(); ++d) {
    sum += static_cast<std::int64_t>(a.units[d]) * b.units[d];
  }
  return sum;
}

float activation(const Vector& q, const Vector& k) {
  if (q.nan || k.nan) return 0.0F;
  const std::int64_t units = exact_dot(q, k);
  return units > 0 ? round_units(units) : 0.0F;
}

float chain(const std::vector<float>& relu, const std::vector<float>& weights, float k_scale) {
  // Heads are padded behind the real ones with zero weight and zero activation.
  const std::size_t padded = std::max<std::size_t>(16, (relu.size() + 7) / 8 * 8);
  std::array<float, kMaxHeads> r{};
  std::array<float, kMaxHeads> w{};
  std::copy(relu.begin(), relu.end(), r.begin());
  std::copy(weights.begin(), weights.end(), w.begin());
  float part[4];
  for (std::size_t lane = 0; lane < 4; ++lane) {
    float t[2];
    for (std::size_t parity = 0; parity < 2; ++parity) {
      const std::size_t h = 2 * lane + parity;
      t[parity] = r[8 + h] * w[8 + h];              // j = 1 is rounded on its own,
      t[parity] = std::fma(r[h], w[h], t[parity]);  // j = 0 enters by the first fma
      for (std::size_t i = 16 + h; i < padded; i += 8) t[parity] = std::fma(r[i], w[i], t[parity]);
    }
    const float sum = t[0] + t[1];
    part[lane] = sum * k_scale;
  }
  const float low = part[0] + part[1];
  const float high = part[2] + part[3];
  return low + high;
}

namespace {

std::vector<Vector> decode_all(const std::vector<std::uint8_t>& codes, std::int64_t first,
                               std::int64_t count, int head_dim) {
  std::vector<Vector> vectors;
  for (std::int64_t i = first; i < first + count; ++i) {
    vectors.push_back(decode(codes.data() + i * head_dim, head_dim));
  }
  return vectors;
}

/// One query row, decoded.
struct Query {
  std::vector<Vector> heads;
  std::vector<float> weights;
};

Query query_of(const Problem& p, std::int64_t row) {
  const std::int64_t first = row * p.num_heads;
  return {decode_all(p.q, first, p.num_heads, p.head_dim),
          {p.weights.begin() + first, p.weights.begin() + first + p.num_heads}};
}

float score_of(const Query& query, const Vector& k, float k_scale) {
  std::vector<float> relu;
  relu.reserve(query.heads.size());
  for (const Vector& q : query.heads) relu.push_back(activation(q, k));
  return chain(relu, query.weights, k_scale);
}

std::vector<float> scores_of(const Problem& p, std::int64_t row, const std::vector<Vector>& keys) {
  const Window w = window(p, row);
  const Query query = query_of(p, row);
  std::vector<float> scores;
  for (std::int64_t key = w.begin; key < w.end; ++key) {
    const auto i = static_cast<std::size_t>(key);
    scores.push_back(score_of(query, keys[i], p.k_scale[i]));
  }
  return scores;
}

}  // namespace

float score(const Problem& p, std::int64_t row, std::int64_t key) {
  return score_of(query_of(p, row), decode(p.k.data() + key * p.head_dim, p.head_dim),
                  p.k_scale[static_cast<std::size_t>(key)]);
}

Window window(const Problem& problem, std::int64_t row) {
  const auto i = static_cast<std::size_t>(row);
  const std::int64_t begin = problem.start.empty() ? 0 : problem.start[i];
  const std::int64_t end = problem.end.empty() ? problem.num_keys : problem.end[i];
  Window clamped{std::clamp<std::int64_t>(begin, 0, problem.num_keys),
                 std::clamp<std::int64_t>(end, 0, problem.num_keys)};
  clamped.end = std::max(clamped.begin, clamped.end);
  return clamped;
}

bool ranks_before(float sa, std::int64_t a, float sb, std::int64_t b) {
  const bool nan_a = std::isnan(sa);
  const bool nan_b = std::isnan(sb);
  if (nan_a != nan_b) return nan_b;
  if (!nan_a && sa != sb) return sa > sb;  // -0 == +0 here
  return a < b;
}

std::vector<float> row_scores(const Problem& problem, std::int64_t row) {
  return scores_of(problem, row, decode_all(problem.k, 0, problem.num_keys, problem.head_dim));
}

namespace {

std::int32_t mapped(const Request& request, std::int64_t row, std::int64_t position,
                    std::int64_t begin) {
  const auto r = static_cast<std::size_t>(row);
  switch (request.form) {
    case IndexForm::kAbsolute:
      return static_cast<std::int32_t>(begin + position);
    case IndexForm::kRelative:
      return static_cast<std::int32_t>(position);
    case IndexForm::kOffset:
      return static_cast<std::int32_t>(position + request.index_offset[r]);
    case IndexForm::kSlot:
      break;
  }
  const std::int64_t table = request.one_table ? 0 : row * request.page_table_pages;
  const std::int64_t page = position / request.page_size;
  const std::int64_t first = request.page_table[static_cast<std::size_t>(table + page)];
  return static_cast<std::int32_t>(first * request.page_size + position % request.page_size);
}

}  // namespace

Row select(const Problem& problem, const Request& request, std::int64_t row,
           const std::vector<float>& scores) {
  const auto length = static_cast<std::int64_t>(scores.size());
  std::vector<float> rank = scores;  // forced keys rank as if they scored +Inf
  for (std::int64_t j = 0; j < length; ++j) {
    if (j < request.forced_first || j >= length - request.forced_last) {
      rank[static_cast<std::size_t>(j)] = std::numeric_limits<float>::infinity();
    }
  }
  std::vector<std::int64_t> best(scores.size());
  std::iota(best.begin(), best.end(), 0);
  std::stable_sort(best.begin(), best.end(), [&rank](std::int64_t a, std::int64_t b) {
    return ranks_before(rank[static_cast<std::size_t>(a)], a, rank[static_cast<std::size_t>(b)], b);
  });
  best.resize(static_cast<std::size_t>(std::min<std::int64_t>(problem.topk, length)));
  if (request.order == Order::kById) std::sort(best.begin(), best.end());

  Row answer;
  const auto width = static_cast<std::size_t>(problem.topk);
  answer.ids.assign(width, -1);
  answer.scores.assign(width, std::numeric_limits<float>::quiet_NaN());
  const std::int64_t begin = window(problem, row).begin;
  for (std::size_t j = 0; j < best.size(); ++j) {
    answer.ids[j] = mapped(request, row, best[j], begin);
    answer.scores[j] = rank[static_cast<std::size_t>(best[j])] + 0.0F;  // -0 is reported as +0
  }
  return answer;
}

std::vector<Row> top_k(const Problem& problem, const Request& request) {
  const auto keys = decode_all(problem.k, 0, problem.num_keys, problem.head_dim);
  std::vector<Row> rows;
  for (std::int64_t row = 0; row < problem.num_queries; ++row) {
    rows.push_back(select(problem, request, row, scores_of(problem, row, keys)));
  }
  return rows;
}

}  // namespace dosa::oracle
