// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

namespace dosa::oracle {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kUnitBits = 9;  // codes are multiples of 2^-9

std::vector<std::uint8_t> small_integers(Random& random, std::size_t count) {
  std::vector<std::uint8_t> codes(count);
  for (auto& code : codes) code = encode_e4m3(static_cast<double>(random.between(-2, 2)));
  return codes;
}

std::vector<std::uint8_t> normal_codes(Random& random, std::size_t count) {
  std::vector<std::uint8_t> codes(count);
  const double size = std::ldexp(1.0, static_cast<int>(random.between(-4, 4)));
  for (auto& code : codes) code = encode_e4m3(random.normal() * size);
  return codes;
}

std::vector<std::uint8_t> any_codes(Random& random, std::size_t count) {
  std::vector<std::uint8_t> codes(count);
  for (auto& code : codes) {
    code = static_cast<std::uint8_t>(random.below(256));
    if ((code & 0x7f) == 0x7f) code ^= 1;
  }
  return codes;
}

void set_dial(Problem& p) {
  std::fill(p.q.begin(), p.q.end(), std::uint8_t{0});
  std::fill(p.k.begin(), p.k.end(), std::uint8_t{0});
  const auto row = static_cast<std::size_t>(p.num_heads) * static_cast<std::size_t>(p.head_dim);
  for (std::size_t i = 0; i < p.q.size(); i += row) p.q[i] = encode_e4m3(1);
  for (std::size_t i = 0; i < p.k.size(); i += static_cast<std::size_t>(p.head_dim)) {
    p.k[i] = encode_e4m3(1);
  }
}

// Copies one of five prototypes into each key: +-a head, a fresh vector, or zero.
void set_plateau(Problem& p, Random& random) {
  if (p.q.empty()) return;
  const auto d = static_cast<std::size_t>(p.head_dim);
  std::vector<std::vector<std::uint8_t>> prototypes = {std::vector<std::uint8_t>(d, 0),
                                                       small_integers(random, d)};
  for (int i = 0; i < 4; ++i) {
    const auto head =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(p.q.size() / d)));
    std::vector<std::uint8_t> v(p.q.begin() + static_cast<std::ptrdiff_t>(head * d),
                                p.q.begin() + static_cast<std::ptrdiff_t>((head + 1) * d));
    if (i % 2 == 1) {
      for (auto& code : v) code ^= 0x80;
    }
    prototypes.push_back(v);
  }
  for (std::size_t i = 0; i < p.k.size(); i += d) {
    const auto& v = random.pick(prototypes);
    std::copy(v.begin(), v.end(), p.k.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void set_parallel(Problem& p, Random& random) {
  if (p.q.empty()) return;
  const auto d = static_cast<std::size_t>(p.head_dim);
  for (std::size_t i = 0; i < p.k.size(); i += d) {
    const auto head =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(p.q.size() / d)));
    const std::uint8_t flip = random.once_in(2) ? 0x80 : 0;
    for (std::size_t j = 0; j < d; ++j) {
      p.k[i + j] = static_cast<std::uint8_t>(p.q[head * d + j] ^ flip);
      // A step of one code in a few coordinates: nearly, not quite, parallel.
      if (random.once_in(24) && (p.k[i + j] & 7) > 0 && (p.k[i + j] & 7) < 6) ++p.k[i + j];
    }
  }
}

// Rows, heads and keys stay together as in the file; coordinates and heads wrap round where the
// problem wants more of them than the file has.
void set_trained(Problem& p, Random& random, const Recipe& recipe) {
  const Problem& t = trained_input();
  if (t.q.empty()) {
    p.q = normal_codes(random, p.q.size());
    p.k = normal_codes(random, p.k.size());
    return;
  }
  const auto d = static_cast<std::size_t>(p.head_dim);
  const auto source_dim = static_cast<std::size_t>(t.head_dim);
  const auto copy = [d, source_dim](const std::vector<std::uint8_t>& from, std::int64_t vector,
                                    std::uint8_t* to) {
    for (std::size_t j = 0; j < d; ++j) {
      to[j] = from[static_cast<std::size_t>(vector) * source_dim + j % source_dim];
    }
  };
  for (std::int64_t r = 0; r < p.num_queries; ++r) {
    const std::int64_t source = random.below(t.num_queries) * t.num_heads;
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      const auto at = static_cast<std::size_t>(r * p.num_heads + h);
      copy(t.q, source + h % t.num_heads, p.q.data() + at * d);
      if (recipe.weights == Weights::kMostlyNegative) {
        p.weights[at] = t.weights[static_cast<std::size_t>(source + h % t.num_heads)];
      }
    }
  }
  const std::int64_t first = random.below(t.num_keys);
  for (std::int64_t i = 0; i < p.num_keys; ++i) {
    const std::int64_t source = (first + i) % t.num_keys;
    copy(t.k, source, p.k.data() + static_cast<std::size_t>(i) * d);
    if (recipe.scales == Scales::kPositive) {
      p.k_scale[static_cast<std::size_t>(i)] = t.k_scale[static_cast<std::size_t>(source)];
    }
  }
}

float draw_weight(Weights kind, Random& random, float previous, bool second) {
  const double sign = random.once_in(2) ? -1.0 : 1.0;
  const double size = 0.01 + std::abs(random.normal());
  switch (kind) {
    case Weights::kOnes:
    case Weights::kCount:
      return 1.0F;
    case Weights::kSigned:
      return static_cast<float>(sign * size);
    case Weights::kNegative:
      return static_cast<float>(-size);
    case Weights::kMostlyNegative:
      return static_cast<float>(random.once_in(6) ? size : -size);
    case Weights::kCancelling:
      if (!second) return static_cast<float>(size);
      return random.once_in(2) ? -previous : -std::nextafterf(previous, 0.0F);
    case Weights::kZeros:
      if (random.once_in(3)) return random.once_in(2) ? 0.0F : -0.0F;
      return static_cast<float>(sign * size);
    case Weights::kWide:
      return static_cast<float>(sign * std::ldexp(size, static_cast<int>(random.between(-30, 30))));
    case Weights::kHuge:
      return static_cast<float>(sign * size * 1e30);
    case Weights::kTiny:
      return static_cast<float>(sign * size * 1e-40);
    case Weights::kNotFinite:
      break;
  }
  if (!random.once_in(20)) return static_cast<float>(sign * size);
  return random.pick<float>({kNan, kInf, -kInf});
}

float draw_scale(Scales kind, Random& random) {
  const auto usual = static_cast<float>(0.001 + std::abs(random.normal()));
  const bool odd = random.once_in(8);
  switch (kind) {
    case Scales::kOnes:
    case Scales::kCount:
      return 1.0F;
    case Scales::kPositive:
      return usual;
    case Scales::kZeros:
      return odd ? random.pick<float>({0.0F, -0.0F}) : usual;
    case Scales::kNegative:
      return odd ? -usual : usual;
    case Scales::kSubnormal:
      return odd ? usual * 1e-39F : usual;
    case Scales::kHuge:
      return random.once_in(2) ? usual * 1e37F : 3e38F;
    case Scales::kTiny:
      return usual * 1e-36F;
    case Scales::kNotFinite:
      return odd ? random.pick<float>({kNan, kInf, -kInf}) : usual;
    case Scales::kAnything:
      break;
  }
  return random.pick<float>({usual, usual, 1.0F, 0.5F, 0.0F, -0.0F, -usual, kNan, kInf, -kInf,
                             3e38F, -3e38F, 1e-38F, 1e-40F, -1e-45F, usual * 1e30F,
                             usual * 1e-30F});
}

std::int32_t draw_end(Random& random, std::int64_t n) {
  switch (random.below(6)) {
    case 0:
      return static_cast<std::int32_t>(n + random.below(1000));  // overlong
    case 1:
      return -static_cast<std::int32_t>(random.below(10));
    case 2:
      return random.once_in(2) ? std::numeric_limits<std::int32_t>::max()
                               : std::numeric_limits<std::int32_t>::min();
    default:
      return static_cast<std::int32_t>(random.between(0, n));
  }
}

void set_windows(Problem& p, Windows kind, Random& random) {
  if (kind == Windows::kNone) return;
  const std::int64_t n = p.num_keys;
  for (std::int64_t row = 0; row < p.num_queries; ++row) {
    std::int64_t a = 0;
    std::int64_t b = std::max<std::int64_t>(0, n - p.num_queries + row + 1);
    if (kind != Windows::kCausal) {
      a = random.between(0, n);
      b = random.between(0, n);
      if (a > b) std::swap(a, b);
    }
    if (kind == Windows::kOdd) {
      a = random.once_in(2) ? draw_end(random, n) : a;
      b = random.once_in(2) ? draw_end(random, n) : b;
    }
    p.start.push_back(static_cast<std::int32_t>(a));
    p.end.push_back(static_cast<std::int32_t>(b));
  }
}

void strew_nan_codes(std::vector<std::uint8_t>& codes, int count, Random& random) {
  for (int i = 0; i < count && !codes.empty(); ++i) {
    const auto at = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(codes.size())));
    codes[at] = random.once_in(2) ? 0x7f : 0xff;
  }
}

void set_codes(Problem& p, const Recipe& recipe, Random& random) {
  switch (recipe.kind) {
    case Kind::kZero:
    case Kind::kCount:
      return;
    case Kind::kInt:
      p.q = small_integers(random, p.q.size());
      p.k = small_integers(random, p.k.size());
      return;
    case Kind::kDial:
      return set_dial(p);
    case Kind::kPlateau:
      p.q = small_integers(random, p.q.size());
      return set_plateau(p, random);
    case Kind::kReal:
      p.q = normal_codes(random, p.q.size());
      p.k = normal_codes(random, p.k.size());
      return;
    case Kind::kCodes:
      p.q = any_codes(random, p.q.size());
      p.k = any_codes(random, p.k.size());
      return;
    case Kind::kParallel:
      p.q = random.once_in(2) ? normal_codes(random, p.q.size()) : any_codes(random, p.q.size());
      return set_parallel(p, random);
    case Kind::kTrained:
      return set_trained(p, random, recipe);
  }
}

// Weights and scales by kind; INT has its own.
void set_factors(Problem& p, const Recipe& recipe, Random& random) {
  float previous = 1.0F;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    previous = draw_weight(recipe.weights, random, previous, i % 2 == 1);
    if (recipe.kind == Kind::kInt && recipe.weights == Weights::kSigned) {
      previous = static_cast<float>(random.between(-32, 32)) / 8.0F;
    }
    p.weights[i] = previous;
  }
  for (float& scale : p.k_scale) {
    scale = draw_scale(recipe.scales, random);
    if (recipe.kind == Kind::kInt && recipe.scales == Scales::kPositive) {
      scale = std::ldexp(1.0F, static_cast<int>(random.between(-2, 2)));
    }
  }
}

}  // namespace

std::uint8_t encode_e4m3(double x) {
  static const std::vector<std::int32_t> kMagnitudes = [] {
    std::vector<std::int32_t> units;  // of codes 0 .. 0x7e, ascending
    for (int code = 0; code < 0x7f; ++code) {
      units.push_back(decode_e4m3(static_cast<std::uint8_t>(code)).units);
    }
    return units;
  }();
  const double target = std::min(std::ldexp(std::abs(x), kUnitBits), 448.0 * 512.0);
  const auto above = std::lower_bound(kMagnitudes.begin(), kMagnitudes.end(), target);
  auto code = above - kMagnitudes.begin();
  if (code > 0) {
    const double up = *above - target;
    const double down = target - kMagnitudes[static_cast<std::size_t>(code - 1)];
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

Problem make_problem(const Recipe& recipe) {
  Random random(recipe.seed * 2 + 1);
  Problem p;
  p.num_queries = recipe.num_queries;
  p.num_keys = recipe.num_keys;
  p.num_heads = recipe.num_heads;
  p.head_dim = 16 * recipe.sixteenths;
  p.topk = recipe.topk;
  const auto heads = static_cast<std::size_t>(p.num_queries * p.num_heads);
  p.q.assign(heads * static_cast<std::size_t>(p.head_dim), 0);
  p.k.assign(static_cast<std::size_t>(p.num_keys * p.head_dim), 0);
  p.weights.assign(heads, 0.0F);
  p.k_scale.assign(static_cast<std::size_t>(p.num_keys), 0.0F);
  set_factors(p, recipe, random);
  set_codes(p, recipe, random);
  strew_nan_codes(p.q, recipe.nan_codes, random);
  strew_nan_codes(p.k, recipe.nan_codes, random);
  set_windows(p, recipe.windows, random);
  return p;
}

Problem dial(const std::vector<float>& values, std::int64_t num_queries, int topk, float weight,
             int num_heads, int head_dim) {
  Problem p;
  p.num_queries = num_queries;
  p.num_keys = static_cast<std::int64_t>(values.size());
  p.num_heads = num_heads;
  p.head_dim = head_dim;
  p.topk = topk;
  p.q.assign(static_cast<std::size_t>(num_queries * num_heads * head_dim), 0);
  p.k.assign(values.size() * static_cast<std::size_t>(head_dim), 0);
  set_dial(p);
  p.weights.assign(static_cast<std::size_t>(num_queries * num_heads), 0.0F);
  for (std::size_t i = 0; i < p.weights.size(); i += static_cast<std::size_t>(num_heads)) {
    p.weights[i] = weight;
  }
  p.k_scale = values;
  return p;
}

Problem residue(std::int64_t num_queries, std::int64_t num_keys, int topk) {
  constexpr int kDim = 128;
  Problem p = dial(std::vector<float>(static_cast<std::size_t>(num_keys), 1.0F), num_queries, topk);
  std::fill(p.q.begin(), p.q.end(), std::uint8_t{0});
  std::fill(p.k.begin(), p.k.end(), std::uint8_t{0});
  const std::uint8_t one = encode_e4m3(1);
  for (std::int64_t r = 0; r < num_queries; ++r)
    p.q[static_cast<std::size_t>(r * kDim + r % kDim)] = one;
  for (std::int64_t i = 0; i < num_keys; ++i)
    p.k[static_cast<std::size_t>(i * kDim + i % kDim)] = one;
  return p;
}

std::vector<std::int32_t> residue_ids(std::int64_t row, std::int64_t num_keys, int topk) {
  constexpr std::int64_t kDim = 128;
  const std::int64_t want = std::min<std::int64_t>(topk, num_keys);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = row % kDim; i < num_keys && std::ssize(ids) < want; i += kDim) {
    ids.push_back(static_cast<std::int32_t>(i));
  }
  // Where there are not enough ones, the lowest zeros follow.
  for (std::int64_t i = 0; i < num_keys && std::ssize(ids) < want; ++i) {
    if (i % kDim != row % kDim) ids.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(ids.begin(), ids.end());
  ids.resize(static_cast<std::size_t>(topk), -1);
  return ids;
}

}  // namespace dosa::oracle
