// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dosa/dosa.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace dosa::io {

/// The inputs of an indexer as a file holds them:
///   q (Q,H,D) F8_E4M3; k (N,D) F8_E4M3; k_scale (N) F32; weights (Q,H) F32;
///   k_start (Q) I32; k_end (Q) I32. Other tensors may be present and are not looked at.
class Trace {
 public:
  /// Maps and checks `path`.  Throws: Error naming the file, the tensor, found and expected.
  [[nodiscard]] static Trace open(const std::string& path);

  /// Takes over a file that is already open; its errors do not name it.  Throws: Error.
  explicit Trace(SafeTensors file);

  /// Points into this object. topk is 0: the caller sets it.
  [[nodiscard]] const dosa_problem& problem() const { return problem_; }
  [[nodiscard]] const SafeTensors& file() const { return file_; }

 private:
  SafeTensors file_;
  std::vector<std::vector<std::uint32_t>> aligned_;  // copies of tensors that lie at odd addresses
  dosa_problem problem_{};
};

/// True where `file` has the tensors of a trace, whatever their shapes.
[[nodiscard]] bool looks_like_trace(const SafeTensors& file);

/// Inputs that are made rather than read.
struct TraceData {
  std::int64_t num_queries = 0;
  std::int64_t num_keys = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::vector<std::uint8_t> q;        // (Q, H, D) e4m3
  std::vector<std::uint8_t> k;        // (N, D) e4m3
  std::vector<float> k_scale;         // (N)
  std::vector<float> weights;         // (Q, H)
  std::vector<std::int32_t> k_start;  // (Q)
  std::vector<std::int32_t> k_end;    // (Q)

  /// Views of the above, ready to be written; valid as long as this object is.
  [[nodiscard]] std::vector<Tensor> tensors() const;
  /// The same as a call takes them, but for K.
  [[nodiscard]] dosa_problem problem() const;
};

/// A part of a problem, with the windows that belong to it.
struct ProblemPart {
  dosa_problem problem{};
  std::vector<std::int32_t> start, end;
};

/// The last `rows` rows with only the last `keys` keys: the most recent context.
[[nodiscard]] ProblemPart cut(const dosa_problem& whole, std::int64_t rows, std::int64_t keys);

/// Views of the results of a call, ready to be written.
/// Shapes:   indices (Q,K) i32; scores (Q,K) f32, or null to leave them out
[[nodiscard]] std::vector<Tensor> result_tensors(std::int64_t num_queries, std::int64_t topk,
                                                 const std::int32_t* indices, const float* scores);

}  // namespace dosa::io
