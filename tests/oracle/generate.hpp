// SPDX-License-Identifier: Apache-2.0
//
// Inputs for tests, made from a short recipe: a failing case prints its recipe and can be made
// again from it. Names in capitals are those of the case collection (INT, DIAL, REAL, RESIDUE).
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "random.hpp"

namespace dosa::oracle {

/// How the codes of q and k are drawn.
enum class Kind : int {
  kZero,      // everything zero: all scores tie
  kInt,       // INT: entries -2..2, weights in eighths, scales powers of two: any order of sums
  kDial,      // one head, one coordinate: the score is the key's scale
  kPlateau,   // few distinct keys, half of them opposite to the heads: ties and zeros
  kReal,      // normal numbers rounded to e4m3
  kCodes,     // uniform codes: heavy tails, both zeros, subnormals
  kParallel,  // keys close to plus or minus a head
  kTrained,   // slices of a trained indexer's input (kReal where the file is absent)
  kCount
};

/// How weights are drawn.
enum class Weights : int {
  kOnes,
  kSigned,
  kNegative,
  kMostlyNegative,  // 5 of 6 negative, as trained indexers have them
  kCancelling,      // pairs of opposite sign and nearly equal size
  kZeros,           // a third are +0 or -0
  kWide,            // 2^-30 .. 2^30
  kHuge,            // 1e30
  kTiny,            // 1e-40, subnormal
  kNotFinite,       // some NaN and Inf
  kCount
};

/// How key scales are drawn. All but the first two hold some keys that no bound covers.
enum class Scales : int {
  kOnes,
  kPositive,
  kZeros,
  kNegative,
  kSubnormal,
  kHuge,
  kTiny,
  kNotFinite,
  kAnything,
  kCount
};

/// How windows are drawn.
enum class Windows : int { kNone, kCausal, kRandom, kOdd, kCount };

struct Recipe {
  Kind kind = Kind::kZero;
  Weights weights = Weights::kOnes;
  Scales scales = Scales::kOnes;
  Windows windows = Windows::kNone;
  int num_queries = 0;
  int num_heads = 1;
  int sixteenths = 1;  // D / 16
  int num_keys = 0;
  int topk = 1;
  int nan_codes = 0;  // NaN codes strewn over q and k, each
  std::uint64_t seed = 0;
};

[[nodiscard]] std::string name(Kind kind);
[[nodiscard]] std::string name(Weights weights);
[[nodiscard]] std::string name(Scales scales);
[[nodiscard]] std::string name(Windows windows);
std::ostream& operator<<(std::ostream& out, const Recipe& recipe);

/// The e4m3 code nearest to x (ties to the even code, saturating).
[[nodiscard]] std::uint8_t encode_e4m3(double x);

[[nodiscard]] Problem make_problem(const Recipe& recipe);

/// DIAL: q[:,0] = e0, weight 1 (or -1); the score of key i is values[i] (or its negative).
[[nodiscard]] Problem dial(const std::vector<float>& values, std::int64_t num_queries, int topk,
                           float weight = 1.0F, int num_heads = 1, int head_dim = 128);

/// RESIDUE: score 1 where i mod 128 == row mod 128, else 0.
[[nodiscard]] Problem residue(std::int64_t num_queries, std::int64_t num_keys, int topk);

/// The answer of RESIDUE for one row, in closed form: ids ascending, then -1.
[[nodiscard]] std::vector<std::int32_t> residue_ids(std::int64_t row, std::int64_t num_keys,
                                                    int topk);

/// Reads q, k, k_scale and weights of a safetensors file for kTrained; false where it is absent.
bool load_trained_input(const std::string& path);

/// What was loaded, or an empty problem.
[[nodiscard]] const Problem& trained_input();

}  // namespace dosa::oracle
