// SPDX-License-Identifier: Apache-2.0
// Lists of scored keys for the tests of dosa_merge_topk, and the answer by sorting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "dosa/dosa_merge.h"
#include "oracle/oracle.hpp"

namespace dosa::test {

struct Entry {
  float score;
  std::int32_t id;
};

/// [list][row][entry]
using Lists = std::vector<std::vector<std::vector<Entry>>>;

/// Ids and scores of one row or call, -1 and NaN behind the last.
struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
};

/// Sorts all keys of a row with the comparison of the oracle; a key counts with its best entry.
inline Answer sorted_answer(const Lists& lists, std::size_t row, int topk, int order) {
  std::map<std::int32_t, float> best;
  for (const auto& list : lists) {
    for (const Entry& entry : list[row]) {
      if (entry.id < 0) break;
      const auto [at, is_new] = best.emplace(entry.id, entry.score);
      const bool nan_is_worse = at->second != at->second && entry.score == entry.score;
      if (!is_new && (entry.score > at->second || nan_is_worse)) at->second = entry.score;
    }
  }
  std::vector<Entry> keys;
  for (const auto& [id, score] : best) keys.push_back({score + 0.0F, id});
  std::sort(keys.begin(), keys.end(), [](const Entry& a, const Entry& b) {
    return oracle::ranks_before(a.score, a.id, b.score, b.id);
  });
  if (keys.size() > static_cast<std::size_t>(topk)) keys.resize(static_cast<std::size_t>(topk));
  if (order == DOSA_ORDER_ID) {
    std::sort(keys.begin(), keys.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  }
  Answer answer;
  for (const Entry& key : keys) {
    answer.ids.push_back(key.id);
    answer.scores.push_back(key.score);
  }
  answer.ids.resize(static_cast<std::size_t>(topk), -1);
  answer.scores.resize(static_cast<std::size_t>(topk), std::numeric_limits<float>::quiet_NaN());
  return answer;
}

/// Owns the arrays of a dosa_candidates.
class Candidates {
 public:
  Candidates(const Lists& lists, std::size_t rows, int topk, bool packed, int padding = 0) {
    value_.struct_size = sizeof value_;
    value_.num_rows = static_cast<std::int64_t>(rows);
    value_.num_lists = static_cast<std::int64_t>(lists.size());
    value_.topk = topk;
    if (packed) {
      pack(lists, rows);
    } else {
      pad(lists, rows, padding);
    }
    value_.scores = scores_.data();
    value_.ids = ids_.data();
  }
  Candidates(const Candidates&) = delete;
  Candidates& operator=(const Candidates&) = delete;

  [[nodiscard]] dosa_candidates& get() { return value_; }

 private:
  void pad(const Lists& lists, std::size_t rows, int padding) {
    std::size_t width = 0;
    for (const auto& list : lists) {
      for (const auto& row : list) width = std::max(width, row.size());
    }
    const std::size_t stride = width + static_cast<std::size_t>(padding);
    value_.width = static_cast<std::int64_t>(width);
    value_.row_stride = static_cast<std::int64_t>(stride);
    value_.list_stride = static_cast<std::int64_t>(std::max(stride * rows, width));
    // What stands behind the end of a list looks like the best key there could be.
    scores_.assign(stride * rows * lists.size(), std::numeric_limits<float>::infinity());
    ids_.assign(scores_.size(), 0);
    for (std::size_t l = 0; l < lists.size(); ++l) {
      for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t begin = (l * rows + row) * stride;
        put(lists[l][row], begin);
        if (lists[l][row].size() < width) ids_[begin + lists[l][row].size()] = -1;
      }
    }
  }

  void pack(const Lists& lists, std::size_t rows) {
    for (const auto& list : lists) {
      for (std::size_t row = 0; row <= rows; ++row) {
        offsets_.push_back(static_cast<std::int64_t>(ids_.size()));
        if (row == rows) break;
        const std::size_t begin = ids_.size();
        scores_.resize(begin + list[row].size());
        ids_.resize(scores_.size());
        put(list[row], begin);
      }
    }
    offsets_.push_back(-5);  // not looked at
    value_.offsets = offsets_.data();
  }

  void put(const std::vector<Entry>& row, std::size_t begin) {
    for (std::size_t n = 0; n < row.size(); ++n) {
      scores_[begin + n] = row[n].score;
      ids_[begin + n] = row[n].id;
    }
  }

  dosa_candidates value_{};
  std::vector<float> scores_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> offsets_;
};

/// Calls with exactly the workspace that was asked for and outputs that were written before.
class MergeCall {
 public:
  explicit MergeCall(dosa_candidates& candidates) {
    status = dosa_merge_workspace_bytes(&candidates, &bytes);
    if (status != DOSA_OK) return;
    const auto topk = static_cast<std::size_t>(candidates.topk);
    const auto rows = static_cast<std::size_t>(candidates.num_rows);
    answer.ids.assign(rows * topk, kUntouched);
    answer.scores.assign(rows * topk, -7.0F);
    workspace.assign(bytes + 1, std::byte{0x5A});
    output.struct_size = sizeof output;
    output.indices = answer.ids.data();
    output.indices_stride = candidates.topk;
    output.scores = answer.scores.data();
    output.scores_stride = candidates.topk;
    status = dosa_merge_topk(&candidates, &output, workspace.data(), bytes);
  }
  static constexpr std::int32_t kUntouched = -77;

  dosa_status status = DOSA_OK;
  std::size_t bytes = 0;
  Answer answer;
  dosa_output output{};
  std::vector<std::byte> workspace;
};

}  // namespace dosa::test
