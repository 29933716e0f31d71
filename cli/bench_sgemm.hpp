// SPDX-License-Identifier: Apache-2.0
// An independent way of answering the same question, against which mode `full` is judged: single
// precision matrix products by OpenBLAS, blocked and threaded, a rising threshold, and exact scores
// for what the rounding of single precision leaves open. It shares no code with the engine and
// returns the same ids. For finite inputs only.
#ifndef DOSA_CLI_BENCH_SGEMM_HPP
#define DOSA_CLI_BENCH_SGEMM_HPP

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#include "dosa/dosa.h"

// A build that does not optimise, such as that of the fuzzers, need not vectorise either.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace dosa::bench {

// Vector code for the newest instruction set of the machine, chosen when the program starts.
#define DOSA_BENCH_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))

namespace sgemm {

/// e4m3 codes to single precision, all values exact; NaN codes are not expected.
DOSA_BENCH_CLONES static void decode(const std::uint8_t* codes, int count, float* values) {
  for (int n = 0; n < count; ++n) {
    const int code = codes[n];
    const int exponent = (code >> 3) & 15;
    const int hidden = exponent == 0 ? 0 : 8;
    const int shift = exponent == 0 ? 0 : exponent - 1;
    const int units = ((code & 7) + hidden) << shift;
    values[n] = static_cast<float>((code & 0x80) != 0 ? -units : units) * 0x1p-9F;
  }
}

/// sums[i] += weight * max(0, dots[i])
DOSA_BENCH_CLONES static void add_head(const float* dots, float weight, int count, float* sums) {
  for (int i = 0; i < count; ++i) sums[i] += weight * (dots[i] > 0.0F ? dots[i] : 0.0F);
}

/// approx[i] = sums[i] * scale[i]; most[i] = approx[i] + strength * error[i]
DOSA_BENCH_CLONES static void finish(const float* sums, const float* scale, const float* error,
                                     float strength, int count, float* approx, float* most) {
  for (int i = 0; i < count; ++i) {
    approx[i] = sums[i] * scale[i];
    most[i] = approx[i] + strength * error[i];
  }
}

/// The score of one key in the `ieee` model, written down from its definition.
inline float exact_score(const float* q, const float* k, const float* weights, float scale,
                         int heads, int head_dim) {
  const int padded = heads <= 16 ? 16 : (heads + 7) / 8 * 8;
  float x[DOSA_MAX_HEADS] = {};
  float w[DOSA_MAX_HEADS] = {};
  for (int h = 0; h < heads; ++h) {
    double dot = 0.0;
    for (int d = 0; d < head_dim; ++d) {
      dot += static_cast<double>(q[h * head_dim + d]) * static_cast<double>(k[d]);
    }
    x[h] = std::max(static_cast<float>(dot), 0.0F);
    w[h] = weights[h];
  }
  float part[4];
  for (int lane = 0; lane < 4; ++lane) {
    float chain[2];
    for (int odd = 0; odd < 2; ++odd) {
      const int first = 2 * lane + odd;
      float sum = x[first + 8] * w[first + 8];
      for (int h = first; h < padded; h += 8) {
        if (h != first + 8) sum = std::fma(x[h], w[h], sum);
      }
      chain[odd] = sum;
    }
    part[lane] = (chain[0] + chain[1]) * scale;
  }
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/// A key that may be among the best: its score lies within approx -+ error.
struct Candidate {
  float approx, error;
  std::int32_t id;
  [[nodiscard]] float least() const { return approx - error; }
  [[nodiscard]] float most() const { return approx + error; }
};

/// The K-th greatest of least() or most(); -Inf where there are fewer.
template <typename Value>
float kth_greatest(const std::vector<Candidate>& candidates, int topk, const Value& value) {
  if (candidates.size() < static_cast<std::size_t>(topk)) {
    return -std::numeric_limits<float>::infinity();
  }
  std::vector<float> values(candidates.size());
  std::transform(candidates.begin(), candidates.end(), values.begin(), value);
  std::nth_element(values.begin(), values.begin() + (topk - 1), values.end(), std::greater<>());
  return values[static_cast<std::size_t>(topk - 1)];
}

/// The candidates of one row.
class Row {
 public:
  void start(std::int64_t begin, std::int64_t end, int topk) {
    begin_ = begin;
    end_ = end;
    topk_ = topk;
    threshold_ = -std::numeric_limits<float>::infinity();
    candidates_.clear();
  }

  void offer(std::int64_t first, int count, const float* approx, const float* most) {
    const auto from = static_cast<int>(std::clamp<std::int64_t>(begin_ - first, 0, count));
    const auto to = static_cast<int>(std::clamp<std::int64_t>(end_ - first, 0, count));
    for (int i = from; i < to; ++i) {
      if (most[i] < threshold_) continue;
      // Grown a little, since most was rounded.
      const float error = (most[i] - approx[i]) * 1.0001F;
      candidates_.push_back({approx[i], error, static_cast<std::int32_t>(first + i)});
    }
    if (candidates_.size() > 2 * static_cast<std::size_t>(topk_)) shrink();
  }

  /// Ids of the best, ascending. score(id) is the exact score.
  template <typename Score>
  void finish(const Score& score, std::int32_t* ids) {
    shrink();
    const float sure = kth_greatest(candidates_, topk_, std::mem_fn(&Candidate::most));
    std::vector<std::pair<float, std::int32_t>> open;  // minus the score, id
    int count = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.least() > sure) {
        ids[count++] = candidate.id;
      } else {
        open.emplace_back(-score(candidate.id), candidate.id);
      }
    }
    const int missing = std::min(topk_ - count, static_cast<int>(open.size()));
    std::partial_sort(open.begin(), open.begin() + missing, open.end());
    for (int n = 0; n < missing; ++n) ids[count++] = open[static_cast<std::size_t>(n)].second;
    std::sort(ids, ids + count);
    std::fill(ids + count, ids + topk_, -1);
  }

 private:
  void shrink() {
    threshold_ = kth_greatest(candidates_, topk_, std::mem_fn(&Candidate::least));
    const auto hopeless = [this](const Candidate& c) { return c.most() < threshold_; };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), hopeless),
                      candidates_.end());
  }

  std::int64_t begin_ = 0, end_ = 0;
  int topk_ = 0;
  float threshold_ = 0.0F;
  std::vector<Candidate> candidates_;
};

}  // namespace sgemm

class DenseSgemm {
 public:
  DenseSgemm() {
    choose_core();
    library_ = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    sgemm_ = reinterpret_cast<Sgemm>(dlsym(library_, "cblas_sgemm"));
    const auto set_threads =
        reinterpret_cast<void (*)(int)>(dlsym(library_, "openblas_set_num_threads"));
    if (set_threads != nullptr) set_threads(1);  // the threads are ours: one per block of rows
    const auto name = reinterpret_cast<char* (*)()>(dlsym(library_, "openblas_get_config"));
    if (name != nullptr) config_ = name();
  }

  [[nodiscard]] bool available() const { return sgemm_ != nullptr; }
  [[nodiscard]] const char* config() const { return config_; }

  /// ids (Q, K)
  void topk(const dosa_problem& problem, int threads, std::int32_t* ids) const {
    const std::int64_t each = (problem.num_queries + threads - 1) / threads;
    const std::int64_t fitting = std::max(1, kProductRows / problem.num_heads);
    const std::int64_t group = std::clamp<std::int64_t>(each, 1, fitting);
    const std::int64_t groups = (problem.num_queries + group - 1) / group;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t g = 0; g < groups; ++g) {
      answer(problem, g * group, std::min((g + 1) * group, problem.num_queries), ids);
    }
  }

 private:
  /// Virtual machines hide what OpenBLAS looks for to tell the newest processors, and it falls back
  /// to SSE3; a choice made outside stands.
  static void choose_core() {
    if (__builtin_cpu_supports("avx512vl")) {
      setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      setenv("OPENBLAS_CORETYPE", "Haswell", 0);
    }
  }

  static constexpr int kKeys = 256;          // keys of a block: decoded once for a group of rows
  static constexpr int kProductRows = 1024;  // query heads of a product: 1 MiB of it

  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);

  void answer(const dosa_problem& problem, std::int64_t begin, std::int64_t end,
              std::int32_t* ids) const {
    const int heads = problem.num_heads;
    const int dim = problem.head_dim;
    const auto rows = static_cast<int>(end - begin);
    std::vector<float> q(static_cast<std::size_t>(rows) * heads * dim);
    std::vector<float> strength(static_cast<std::size_t>(rows));
    std::vector<sgemm::Row> state(static_cast<std::size_t>(rows));
    std::int64_t first = problem.num_keys;
    std::int64_t last = 0;
    for (int r = 0; r < rows; ++r) {
      const std::int64_t row = begin + r;
      sgemm::decode(problem.q + row * problem.q_stride, heads * dim, &q[index(r, heads * dim)]);
      strength[index(r)] = row_strength(&q[index(r, heads * dim)],
                                        problem.weights + row * problem.weights_stride, heads, dim);
      const std::int64_t start =
          std::clamp<std::int64_t>(problem.k_start[row], 0, last_key(problem));
      const std::int64_t stop = std::clamp<std::int64_t>(problem.k_end[row], 0, last_key(problem));
      state[index(r)].start(start, stop, problem.topk);
      first = std::min(first, start);
      last = std::max(last, stop);
    }
    scan(problem, begin, q, strength, first, last, state);
    std::vector<float> key(static_cast<std::size_t>(dim));
    for (int r = 0; r < rows; ++r) {
      const std::int64_t row = begin + r;
      const auto score = [&](std::int32_t id) {
        sgemm::decode(problem.k + id * problem.k_stride, dim, key.data());
        return sgemm::exact_score(&q[index(r, heads * dim)], key.data(),
                                  problem.weights + row * problem.weights_stride,
                                  problem.k_scale[id], heads, dim);
      };
      state[index(r)].finish(score, ids + row * problem.topk);
    }
  }

  void scan(const dosa_problem& problem, std::int64_t begin, const std::vector<float>& q,
            const std::vector<float>& strength, std::int64_t first, std::int64_t last,
            std::vector<sgemm::Row>& state) const {
    constexpr int kRowMajor = 101;
    constexpr int kNoTrans = 111;
    constexpr int kTrans = 112;
    const int heads = problem.num_heads;
    const int dim = problem.head_dim;
    const auto rows = static_cast<int>(state.size());
    std::vector<float> keys(static_cast<std::size_t>(kKeys) * dim);
    std::vector<float> product(static_cast<std::size_t>(rows) * heads * kKeys);
    float error[kKeys];
    float sums[kKeys];
    float approx[kKeys];
    float most[kKeys];
    for (std::int64_t key = first; key < last; key += kKeys) {
      const auto count = static_cast<int>(std::min<std::int64_t>(kKeys, last - key));
      for (int i = 0; i < count; ++i) {
        float* values = &keys[index(i, dim)];
        sgemm::decode(problem.k + (key + i) * problem.k_stride, dim, values);
        error[i] =
            norm(values, dim) * std::fabs(problem.k_scale[key + i]) * relative_error(problem);
      }
      sgemm_(kRowMajor, kNoTrans, kTrans, rows * heads, count, dim, 1.0F, q.data(), dim,
             keys.data(), dim, 0.0F, product.data(), kKeys);
      for (int r = 0; r < rows; ++r) {
        std::fill(sums, sums + count, 0.0F);
        const float* weights = problem.weights + (begin + r) * problem.weights_stride;
        for (int h = 0; h < heads; ++h) {
          sgemm::add_head(&product[index(r * heads + h, kKeys)], weights[h], count, sums);
        }
        sgemm::finish(sums, problem.k_scale + key, error, strength[index(r)], count, approx, most);
        state[index(r)].offer(key, count, approx, most);
      }
    }
  }

  static std::size_t index(int row, int stride = 1) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(stride);
  }
  static std::int64_t last_key(const dosa_problem& problem) { return problem.num_keys; }

  static float norm(const float* values, int count) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int n = 0; n < count; ++n) sum += values[n] * values[n];
    return std::sqrt(sum) * 1.0001F;
  }

  static float row_strength(const float* q, const float* weights, int heads, int dim) {
    float sum = 0.0F;
    for (int h = 0; h < heads; ++h) sum += std::fabs(weights[h]) * norm(q + h * dim, dim);
    return sum * 1.0001F;
  }

  /// Roundings of a product of D terms, of the sum over H heads, here and in the model, and some
  /// to spare, times the unit roundoff: relative to sum_h |w_h| |q_h| |k| k_scale.
  static float relative_error(const dosa_problem& problem) {
    return static_cast<float>(problem.head_dim + 2 * problem.num_heads + 32) * 0x1p-24F;
  }

  void* library_ = nullptr;
  Sgemm sgemm_ = nullptr;
  const char* config_ = "";
};

}  // namespace dosa::bench

#endif  // DOSA_CLI_BENCH_SGEMM_HPP
