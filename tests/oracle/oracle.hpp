// SPDX-License-Identifier: Apache-2.0
//
// The specification as a program: the `ieee` score model and the order of the contract, in plain
// exact arithmetic. It shares no code with the library and takes no short cut; tests compare the
// library's bytes with what stands here.
#pragma once

#include <cstdint>
#include <vector>

namespace dosa::oracle {

/// One indexer problem that owns its data. Shapes: q (Q,H,D), k (N,D), k_scale (N),
/// weights (Q,H), start and end (Q). Empty start or end stand for 0 and N.
struct Problem {
  std::int64_t num_queries = 0;  // Q
  std::int64_t num_keys = 0;     // N
  int num_heads = 1;             // H
  int head_dim = 16;             // D
  int topk = 1;                  // K
  std::vector<std::uint8_t> q;
  std::vector<std::uint8_t> k;
  std::vector<float> k_scale;
  std::vector<float> weights;
  std::vector<std::int32_t> start;
  std::vector<std::int32_t> end;
};

enum class IndexForm { kAbsolute, kRelative, kOffset, kSlot };
enum class Order { kById, kByScore };

struct Request {
  IndexForm form = IndexForm::kAbsolute;
  Order order = Order::kById;
  int forced_first = 0;
  int forced_last = 0;
  std::vector<std::int32_t> index_offset;  // (Q)
  std::vector<std::int32_t> page_table;    // (Q or 1, pages)
  std::int64_t page_table_pages = 0;
  int page_size = 1;
  bool one_table = false;  // the first row of the table serves all queries
};

/// An e4m3 code is `units` * 2^-9, or a NaN.
struct E4m3 {
  std::int32_t units = 0;
  bool nan = false;
};

/// A vector of codes, decoded. Its dot products are NaN where one of its codes is.
struct Vector {
  std::vector<std::int32_t> units;
  bool nan = false;
};

struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t length() const { return end - begin; }
};

/// What one row returns: K ids and K scores, -1 and NaN behind the last. Forced keys report +Inf,
/// and a score of -0 is reported as +0.
struct Row {
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
};

[[nodiscard]] E4m3 decode_e4m3(std::uint8_t code);

/// The float nearest to units * 2^-18, ties to even; |units| < 2^62.
[[nodiscard]] float round_units(std::int64_t units);

[[nodiscard]] Vector decode(const std::uint8_t* codes, int head_dim);

/// sum_d a[d] * b[d] in units of 2^-18, exactly; the NaN of either vector is not looked at.
[[nodiscard]] std::int64_t exact_dot(const Vector& a, const Vector& b);

/// max(0, dot) as fp32. A NaN dot product counts as 0, as fmaxf(NaN, 0) does; -0 becomes +0.
[[nodiscard]] float activation(const Vector& q, const Vector& k);

/// The fp32 chain: activations and weights of H heads in order, and the key's scale.
[[nodiscard]] float chain(const std::vector<float>& relu, const std::vector<float>& weights,
                          float k_scale);

/// The score of one key for one query row.
[[nodiscard]] float score(const Problem& problem, std::int64_t row, std::int64_t key);

[[nodiscard]] Window window(const Problem& problem, std::int64_t row);

/// Whether key a with score sa ranks before key b with score sb.
[[nodiscard]] bool ranks_before(float sa, std::int64_t a, float sb, std::int64_t b);

/// Selects from the scores of the keys [begin, begin + scores.size()) of one row.
[[nodiscard]] Row select(const Problem& problem, const Request& request, std::int64_t row,
                         const std::vector<float>& scores);

/// Scores every visible key of one row: element j belongs to key window.begin + j.
[[nodiscard]] std::vector<float> row_scores(const Problem& problem, std::int64_t row);

/// The answer of the contract for every row.
[[nodiscard]] std::vector<Row> top_k(const Problem& problem, const Request& request);

}  // namespace dosa::oracle
