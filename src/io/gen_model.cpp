// SPDX-License-Identifier: Apache-2.0
#include "io/gen_model.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "io/error.hpp"
#include "io/gen_random.hpp"
#include "io/gen_vector.hpp"

namespace dosa::io {
namespace {

// Parts of the random numbers. Nothing is drawn from the shape, so that a longer workload starts
// with the same keys.
enum Part : std::uint64_t {
  kStructure,
  kPassages,
  kKeys,
  kDetail,
  kHeads,
  kDrift,
  kNoise,
  kWeights
};

// Places in the list of directions; the subjects follow.
constexpr std::size_t kShared = 0;
constexpr std::size_t kTheme = 1;
constexpr std::size_t kAgainst = 2;
constexpr std::size_t kSubjects = 3;

/// Calls body(begin, end) for pieces of [0, count) on `threads` threads.
template <typename Body>
void parallel(std::int64_t count, std::int64_t piece, int threads, const Body& body) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    while (true) {
      const std::int64_t begin = next.fetch_add(piece);
      if (begin >= count) return;
      body(begin, std::min(begin + piece, count));
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

enum class Token { kOrdinary, kSalient, kPlain, kContrary };

struct Passage {
  std::int64_t begin = 0;
  std::size_t subject = 0;
  double richness = 1;  // of salient tokens, relative to the mean
};

constexpr double kHesitantSpread = 0.05;  // of a hesitant head's loading on the shared component

struct Head {
  float shared = 0, theme = 0, contrary = 0, subject = 0;  // loadings
  float residual = 0;                                      // norm of the rest
  GenVector fixed{};  // the unit vector of the residual that stays
  double weight = 0;
  double spread = 0;
};

class Generator {
 public:
  Generator(const GenModel& model, const GenShape& shape)
      : model_(model), shape_(shape), random_(CounterRandom(shape.seed).child(model.stream)) {
    make_structure();
    make_passages();
    make_heads();
  }

  void make_keys(std::int64_t begin, std::int64_t end, TraceData& data) const;
  void make_row(std::int64_t row, TraceData& data) const;

 private:
  void make_structure();
  void make_passages();
  void make_heads();
  void remove_structure(GenVector& v) const;
  [[nodiscard]] Token token_of(double uniform, double richness) const;
  [[nodiscard]] std::size_t passage_at(std::int64_t position) const;
  [[nodiscard]] GenVector interest_at(std::int64_t position) const;
  [[nodiscard]] GenVector changing_residual(std::size_t head, std::int64_t position) const;

  GenModel model_;
  GenShape shape_;
  CounterRandom random_;
  std::vector<GenVector> structure_;  // the directions, orthonormal
  std::vector<Passage> passages_;     // the last one is a sentinel behind the last key
  std::vector<Head> heads_;
};

void Generator::remove_structure(GenVector& v) const {
  for (const GenVector& direction : structure_) add(v, -dot(v, direction), direction);
}

void Generator::make_structure() {
  const CounterRandom random = random_.child(kStructure);
  const std::size_t count = kSubjects + static_cast<std::size_t>(model_.num_subjects);
  for (std::size_t i = 0; i < count; ++i) {
    GenVector direction = random_vector(random, i);
    remove_structure(direction);
    normalise(direction);
    structure_.push_back(direction);
  }
}

void Generator::make_passages() {
  const CounterRandom random = random_.child(kPassages);
  const double length = model_.passage_length;
  std::int64_t begin = 0;
  for (std::uint64_t i = 0; begin < shape_.keys; ++i) {
    const double subject = random.uniform(3 * i) * model_.num_subjects;
    const double richness = 0.25 + 1.5 * random.uniform(3 * i + 1);
    passages_.push_back({begin, static_cast<std::size_t>(subject), richness});
    begin += static_cast<std::int64_t>(length * (0.5 + random.uniform(3 * i + 2)));
  }
  passages_.push_back({begin, 0, 1});
}

/// Scales a loading of heads [begin, end) so that its mean, weighted by the heads' weights, is
/// `nominal`: heads differ, but what they do together is what the model says.
void settle(std::vector<Head>& heads, std::size_t begin, std::size_t end, float Head::*loading,
            double nominal) {
  double weighted = 0;
  double weights = 0;
  for (std::size_t h = begin; h < end; ++h) {
    weighted += heads[h].weight * static_cast<double>(heads[h].*loading);
    weights += heads[h].weight;
  }
  if (weighted == 0) return;
  const float factor = static_cast<float>(nominal * weights / weighted);
  for (std::size_t h = begin; h < end; ++h) heads[h].*loading *= factor;
}

void Generator::make_heads() {
  const CounterRandom random = random_.child(kHeads);
  const std::size_t positive = static_cast<std::size_t>(model_.positive);
  const std::size_t hesitant = positive + static_cast<std::size_t>(model_.hesitant);
  const std::size_t quiet = hesitant + static_cast<std::size_t>(model_.quiet);
  const std::size_t all = static_cast<std::size_t>(model_.heads);
  heads_.resize(all);
  for (std::size_t h = 0; h < all; ++h) {
    const CounterRandom own = random.child(h);
    const auto vary = [&](std::uint64_t counter, double mean, double spread) {
      return static_cast<float>(mean * (1 + spread * own.normal(counter)));
    };
    Head& head = heads_[h];
    if (h < positive) {
      head.shared = vary(0, model_.positive_shared, 0.10);
      head.theme = vary(1, model_.positive_theme, 0.15);
      head.subject = vary(2, model_.positive_subject, 0.15);
      head.weight = static_cast<double>(vary(3, model_.positive_weight, 0.10));
    } else if (h < hesitant) {
      head.shared = static_cast<float>(kHesitantSpread * own.normal(0));
      head.weight = -static_cast<double>(vary(3, model_.hesitant_weight, 0.25));
    } else if (h < quiet) {
      head.shared = -vary(0, model_.quiet_shared, 0.30);
      head.contrary = static_cast<float>(-model_.quiet_contrary);
      head.weight = -static_cast<double>(vary(3, model_.quiet_weight, 0.25));
    } else {
      head.shared = vary(0, model_.firing_shared, 0.20);
      head.weight = -static_cast<double>(vary(3, model_.firing_weight, 0.25));
    }
    head.spread = h >= positive && h < quiet ? model_.wavering_spread : model_.weight_spread;
    head.fixed = random_vector(own, 1);
    remove_structure(head.fixed);
    normalise(head.fixed);
  }
  settle(heads_, 0, positive, &Head::shared, model_.positive_shared);
  settle(heads_, 0, positive, &Head::theme, model_.positive_theme);
  settle(heads_, hesitant, quiet, &Head::shared, -model_.quiet_shared);
  settle(heads_, quiet, all, &Head::shared, model_.firing_shared);
  for (Head& head : heads_) {
    const float aligned = head.shared * head.shared + head.theme * head.theme +
                          head.contrary * head.contrary + head.subject * head.subject;
    head.residual = std::sqrt(std::max(0.05F, 1 - aligned));
  }
}

std::size_t Generator::passage_at(std::int64_t position) const {
  const auto after = std::upper_bound(
      passages_.begin(), passages_.end(), position,
      [](std::int64_t value, const Passage& passage) { return value < passage.begin; });
  return static_cast<std::size_t>(after - passages_.begin()) - 1;
}

Token Generator::token_of(double uniform, double richness) const {
  double end = model_.salient_share * richness;
  if (uniform < end) return Token::kSalient;
  if (uniform < (end += model_.plain_share)) return Token::kPlain;
  return uniform < end + model_.contrary_share ? Token::kContrary : Token::kOrdinary;
}

void Generator::make_keys(std::int64_t begin, std::int64_t end, TraceData& data) const {
  const CounterRandom random = random_.child(kKeys);
  const CounterRandom detail = random_.child(kDetail);
  std::size_t passage = passage_at(begin);
  for (std::int64_t i = begin; i < end; ++i) {
    while (passages_[passage + 1].begin <= i) ++passage;
    const std::uint64_t index = static_cast<std::uint64_t>(i);
    const CounterRandom own = random.child(index);
    const Token token = token_of(own.uniform(0), passages_[passage].richness);
    const bool salient = token == Token::kSalient;
    const double salience = salient ? model_.salient_mean + model_.salient_spread * own.normal(1)
                                    : model_.ordinary_spread * own.normal(1);
    const double shared =
        model_.shared *
            (token == Token::kPlain ? model_.plain_shared : 1 - model_.shared_loss * salience) +
        model_.shared_spread * own.normal(2);
    const double theme = model_.theme * salience;
    const double subject =
        (salient ? model_.subject * salience : model_.subject_ordinary) * (1 + 0.3 * own.normal(3));
    const double contrary = token == Token::kContrary ? model_.contrary : 0;
    const double placed = shared * shared + theme * theme + contrary * contrary + subject * subject;
    const double rest = std::max(0.1, 1 - placed / static_cast<double>(kGenDim));
    GenVector key = random_vector(detail, index);
    // What a key has of these directions is what the model says, no more.
    for (const std::size_t direction : {kShared, kTheme, kAgainst}) {
      add(key, -dot(key, structure_[direction]), structure_[direction]);
    }
    const float detail_norm = static_cast<float>(std::sqrt(rest));
    for (float& x : key) x *= detail_norm;
    add(key, static_cast<float>(shared), structure_[kShared]);
    add(key, static_cast<float>(theme), structure_[kTheme]);
    if (token == Token::kContrary) add(key, static_cast<float>(contrary), structure_[kAgainst]);
    add(key, static_cast<float>(subject), structure_[kSubjects + passages_[passage].subject]);
    data.k_scale[index] = quantise(key, &data.k[index * kGenDim]);
  }
}

/// Sum over the current and the earlier passages of (interest) Psi: 1 for the current one, after
/// it has been read for a quarter, and half as much for each older one; continuous in position.
GenVector Generator::interest_at(std::int64_t position) const {
  constexpr std::size_t kRemembered = 4;
  const std::size_t current = passage_at(position);
  const Passage& passage = passages_[current];
  const double length = static_cast<double>(passages_[current + 1].begin - passage.begin);
  const double progress = static_cast<double>(position - passage.begin) / length;
  GenVector result{};
  double older = 1 - 0.5 * progress;
  for (std::size_t back = 0; back <= std::min(current, kRemembered); ++back) {
    const double interest = back == 0 ? std::min(1.0, 4 * progress) : older;
    add(result, static_cast<float>(interest),
        structure_[kSubjects + passages_[current - back].subject]);
    if (back > 0) older *= 0.5;
  }
  return result;
}

GenVector Generator::changing_residual(std::size_t head, std::int64_t position) const {
  const CounterRandom drift = random_.child(kDrift).child(head);
  const CounterRandom noise = random_.child(kNoise).child(head);
  const std::uint64_t place = static_cast<std::uint64_t>(position);
  const std::uint64_t length = static_cast<std::uint64_t>(model_.drift_length);
  const std::uint64_t knot = place / length;
  const double part = static_cast<double>(place % length) / static_cast<double>(length);
  // Between two knots, scaled so that the variance is the same everywhere.
  const double scale = std::sqrt(model_.drift / ((1 - part) * (1 - part) + part * part));
  GenVector result{};
  add(result, static_cast<float>(scale * (1 - part)), random_vector(drift, knot));
  add(result, static_cast<float>(scale * part), random_vector(drift, knot + 1));
  add(result, static_cast<float>(std::sqrt(model_.token_noise)), random_vector(noise, place));
  remove_structure(result);
  const float to_unit = 1.0F / std::sqrt(static_cast<float>(kGenDim - structure_.size()));
  for (float& x : result) x *= to_unit;
  return result;
}

void Generator::make_row(std::int64_t row, TraceData& data) const {
  const std::int64_t position = shape_.keys - 1 - (shape_.queries - 1 - row) * shape_.stride;
  const GenVector interest = interest_at(position);
  const CounterRandom weights = random_.child(kWeights).child(static_cast<std::uint64_t>(position));
  const float fixed = static_cast<float>(std::sqrt(1 - model_.drift - model_.token_noise));
  const float query_norm = std::sqrt(static_cast<float>(kGenDim));
  const float fold =  // D^-1/2 H^-1/2, in the weights by contract
      1.0F / (query_norm * std::sqrt(static_cast<float>(model_.heads)));
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    const Head& head = heads_[h];
    GenVector query = changing_residual(h, position);
    add(query, fixed, head.fixed);
    for (float& x : query) x *= head.residual;
    add(query, head.shared, structure_[kShared]);
    add(query, head.theme, structure_[kTheme]);
    add(query, head.contrary, structure_[kAgainst]);
    add(query, head.subject, interest);
    for (float& x : query) x *= query_norm;
    const std::size_t index = static_cast<std::size_t>(row) * heads_.size() + h;
    const float scale = quantise(query, &data.q[index * kGenDim]);
    const double weight = head.weight * (1 + head.spread * weights.normal(h));
    data.weights[index] = static_cast<float>(weight) * scale * fold;
  }
  data.k_start[static_cast<std::size_t>(row)] = 0;
  data.k_end[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(position + 1);
}

void check(const GenShape& shape) {
  const auto need = [](bool holds, const char* what, std::int64_t found, const char* expected) {
    if (!holds) throw Error(what, std::to_string(found), expected);
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  need(shape.keys >= 0 && shape.keys <= kMost, "keys", shape.keys, "0 to 2^31 - 1");
  need(shape.stride >= 1 && shape.stride <= kMost, "stride", shape.stride, "1 to 2^31 - 1");
  need(shape.queries >= 0 && shape.queries <= kMost, "queries", shape.queries, "0 to 2^31 - 1");
  const std::int64_t first = shape.keys - 1 - (shape.queries - 1) * shape.stride;
  need(shape.queries == 0 || first >= 0, "position of the first query row", first,
       "0 or more (keys - 1 - (queries - 1) stride)");
}

}  // namespace

TraceData generate(const GenModel& model, const GenShape& shape) {
  check(shape);
  TraceData data;
  data.num_queries = shape.queries;
  data.num_keys = shape.keys;
  data.num_heads = model.heads;
  data.head_dim = kGenDim;
  const std::size_t num_queries = static_cast<std::size_t>(shape.queries);
  const std::size_t num_keys = static_cast<std::size_t>(shape.keys);
  const std::size_t num_heads = static_cast<std::size_t>(model.heads);
  data.q.resize(num_queries * num_heads * kGenDim);
  data.k.resize(num_keys * kGenDim);
  data.k_scale.resize(num_keys);
  data.weights.resize(num_queries * num_heads);
  data.k_start.resize(num_queries);
  data.k_end.resize(num_queries);
  const int threads = shape.threads > 0
                          ? shape.threads
                          : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Generator generator(model, shape);
  parallel(shape.keys, 4096, threads,
           [&](std::int64_t begin, std::int64_t end) { generator.make_keys(begin, end, data); });
  parallel(shape.queries, 1, threads,
           [&](std::int64_t begin, std::int64_t) { generator.make_row(begin, data); });
  return data;
}

}  // namespace dosa::io
