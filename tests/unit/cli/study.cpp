// SPDX-License-Identifier: Apache-2.0
// `dosa study`: its counts against the certificate written out once more, plainly, in doubles.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "io/safetensors.hpp"
#include "unit/cli/command.hpp"

namespace dosa::test {
namespace {

using Json = nlohmann::json;
using Vector = std::vector<double>;

const std::string kReal = std::string(DOSA_TEST_DATA) + "/code_small.safetensors";
constexpr std::size_t kHeads = 32, kDim = 128;
constexpr std::int64_t kTopK = 256;

double e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

template <typename Element>
std::vector<Element> tensor(const io::SafeTensors& file, const std::string& name) {
  const io::Tensor* found = file.find(name);
  std::vector<Element> elements(found->data.size() / sizeof(Element));
  std::memcpy(elements.data(), found->data.data(), found->data.size());
  return elements;
}

/// A trace of 32 heads of 128 in doubles; scales are part of the keys.
struct PlainTrace {
  std::vector<Vector> keys;
  std::vector<std::uint8_t> q;
  std::vector<float> weights;
  std::vector<std::int32_t> end;

  explicit PlainTrace(const std::string& path) {
    const io::SafeTensors file = io::SafeTensors::open(path);
    const auto codes = tensor<std::uint8_t>(file, "k");
    const auto scale = tensor<float>(file, "k_scale");
    q = tensor<std::uint8_t>(file, "q");
    weights = tensor<float>(file, "weights");
    end = tensor<std::int32_t>(file, "k_end");
    for (std::size_t i = 0; i < scale.size(); ++i) {
      keys.emplace_back(kDim);
      for (std::size_t d = 0; d < kDim; ++d) {
        keys[i][d] = e4m3(codes[i * kDim + d]) * double{scale[i]};
      }
    }
  }
};

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// One row: queries, weights, and the positive parts of all dot products.
struct PlainRow {
  std::vector<Vector> q;
  Vector w, norm, scores, key_norm;
  std::vector<Vector> products;  // (keys, heads)

  PlainRow(const PlainTrace& trace, std::size_t row) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      q.emplace_back(kDim);
      for (std::size_t d = 0; d < kDim; ++d) {
        q[h][d] = e4m3(trace.q[(row * kHeads + h) * kDim + d]);
      }
      w.push_back(trace.weights[row * kHeads + h]);
      norm.push_back(std::sqrt(dot(q[h], q[h])));
    }
    for (std::int32_t i = 0; i < trace.end[row]; ++i) {
      const Vector& key = trace.keys[static_cast<std::size_t>(i)];
      products.emplace_back();
      double score = 0.0;
      for (std::size_t h = 0; h < kHeads; ++h) {
        products.back().push_back(std::max(0.0, dot(q[h], key)));
        score += w[h] * products.back()[h];
      }
      scores.push_back(score);
      key_norm.push_back(std::sqrt(dot(key, key)));
    }
  }

  [[nodiscard]] std::vector<std::size_t> best(std::vector<std::size_t> ids) const {
    std::sort(ids.begin(), ids.end(), [&](std::size_t a, std::size_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    ids.resize(kTopK);
    return ids;
  }
};

std::vector<std::size_t> first_ids(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

/// The paper's rules, sections 3 to 6 of docs/math.md.
class PlainCertificate {
 public:
  PlainCertificate(const PlainRow& row, const std::vector<std::size_t>& seeds, std::size_t r,
                   const std::string& variant)
      : row_(row), folded_(kHeads, 0.0), aggregate_(kDim, 0.0) {
    Vector p(kHeads, 0.0);
    for (const std::size_t seed : seeds) {
      for (std::size_t h = 0; h < kHeads; ++h) p[h] += row.products[seed][h] > 0 ? 1.0 : 0.0;
    }
    for (double& share : p) share /= static_cast<double>(seeds.size());
    retain(p, r, variant);
    for (std::size_t h = 0; h < kHeads; ++h) {
      if (retained_[h]) continue;
      if (row.w[h] > 0) project(h, variant != "no projection");
      const bool all = variant == "aggregate all";
      if (row.w[h] >= 0 || variant == "no aggregate" || (p[h] < 0.5 && !all)) continue;
      for (std::size_t d = 0; d < kDim; ++d) aggregate_[d] -= row.w[h] * row.q[h][d];
    }
  }

  [[nodiscard]] double bound(const PlainTrace& trace, std::size_t key) const {
    double value = allowance_ * row_.key_norm[key];
    for (std::size_t h = 0; h < kHeads; ++h) value += folded_[h] * row_.products[key][h];
    return value - std::max(0.0, dot(aggregate_, trace.keys[key]));
  }

 private:
  void retain(const Vector& p, std::size_t r, const std::string& variant) {
    // Positive heads first, then by priority.
    std::vector<std::tuple<bool, double, std::size_t>> order;
    for (std::size_t h = 0; h < kHeads; ++h) {
      const double strength = std::fabs(row_.w[h]) * row_.norm[h];
      const double open = variant == "strength only" ? 1.0 : std::min(p[h], 1 - p[h]);
      const bool first = row_.w[h] > 0;
      order.emplace_back(!first, first ? -strength : -strength * open, h);
    }
    std::sort(order.begin(), order.end());
    retained_.assign(kHeads, false);
    for (std::size_t n = 0; n < r; ++n) {
      const std::size_t h = std::get<2>(order[n]);
      retained_[h] = true;
      folded_[h] = row_.w[h];
    }
  }

  void project(std::size_t h, bool lean) {
    double least = row_.norm[h];
    double beta = 0.0;
    std::size_t anchor = kHeads;
    for (std::size_t j = 0; j < kHeads && lean; ++j) {
      if (!retained_[j]) continue;
      const double b = std::max(0.0, dot(row_.q[h], row_.q[j]) / (row_.norm[j] * row_.norm[j]));
      Vector rest = row_.q[h];
      for (std::size_t d = 0; d < kDim; ++d) rest[d] -= b * row_.q[j][d];
      const double length = std::sqrt(dot(rest, rest));
      if (length >= least) continue;
      least = length;
      beta = b;
      anchor = j;
    }
    allowance_ += row_.w[h] * least;
    if (anchor < kHeads) folded_[anchor] += row_.w[h] * beta;
  }

  const PlainRow& row_;
  Vector folded_, aggregate_;
  double allowance_ = 0.0;
  std::vector<bool> retained_;
};

class Study : public CommandTest {
 protected:
  Json study(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "study");
    arguments.insert(arguments.end(), {"--json", file("study.json"), "--csv", file("study.csv")});
    text_ = succeed(arguments).out;
    return Json::parse(std::ifstream(file("study.json")));
  }
  std::string text_;
};

const Json& find_case(const Json& input, const std::string& facet, const std::string& name) {
  static const Json kNone;
  for (const Json& one : input["cases"]) {
    if (one["facet"] == facet && one["name"] == name) return one;
  }
  ADD_FAILURE() << "no case " << facet << ", " << name;
  return kNone;
}

/// Checks one row of a study by the paper's rules, r and 4 heads. `guard`, in units of
/// sum_h |w_h||q_h||k|, is the most that the certified bound may lie above the plain one.
void expect_row(const Json& input, const PlainTrace& trace, const std::vector<std::size_t>& pool,
                std::size_t n, std::size_t r, double guard) {
  const PlainRow row(trace, input["rows"][n]);
  const std::vector<std::size_t> seeds = row.best(pool);
  const double tau = row.scores[seeds.back()];
  double strength = 0.0;
  for (std::size_t h = 0; h < kHeads; ++h) strength += std::fabs(row.w[h]) * row.norm[h];
  const auto expect = [&](const std::string& facet, const std::string& name, std::size_t heads) {
    const PlainCertificate certificate(row, seeds, heads, name);
    std::int64_t least = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < row.scores.size(); ++i) {
      const double bound = certificate.bound(trace, i);
      ASSERT_GE(bound, row.scores[i] - 1e-9 * std::fabs(tau));
      least += bound >= tau ? 1 : 0;
      most += bound + guard * strength * row.key_norm[i] >= tau ? 1 : 0;
    }
    const std::int64_t found = find_case(input, facet, name)["survivors_fixed"][n];
    EXPECT_LE(least, found) << name << ", row " << n;
    EXPECT_LE(found, most) << name << ", row " << n;
  };
  for (const char* name :
       {"full certificate", "no aggregate", "aggregate all", "strength only", "no projection"}) {
    expect("components", name, r);
  }
  expect("retained", "paper's rules, r = 4", 4);  // more positive heads than r: anchors
}

void expect_study(const Json& input, const std::string& path, double guard) {
  const std::size_t r = input["retained"];
  EXPECT_EQ(input["violations"], 0);
  const PlainTrace trace(path);
  const PlainRow pool_row(trace, 0);
  std::vector<std::size_t> pool = pool_row.best(first_ids(0, pool_row.scores.size()));
  const std::vector<std::size_t> recent =
      first_ids(pool_row.scores.size() - kTopK, pool_row.scores.size());
  pool.insert(pool.end(), recent.begin(), recent.end());
  std::sort(pool.begin(), pool.end());
  pool.erase(std::unique(pool.begin(), pool.end()), pool.end());
  for (std::size_t n = 0; n < input["rows"].size(); ++n)
    expect_row(input, trace, pool, n, r, guard);
}

std::vector<std::string> paper_rules(const std::string& trace, const std::string& r) {
  return {trace,      "-k", "256",     "--sample", "1", "--facets", "components,retained",
          "--widths", "4",  "--heads", r};
}

// On real values the certified bound lies above the plain one by its guard for rounding.
TEST_F(Study, CountsAreThoseOfThePlainCertificateAndItsGuard) {
  const Json found = study(paper_rules(kReal, "12"));
  ASSERT_EQ(found["inputs"][0]["rows"], Json({63}));
  expect_study(found["inputs"][0], kReal, 0x1p-15);
}

// Small integers: bounds without an allowance are multiples of 2^-5 and far from a threshold that
// they do not equal, so the counts are the same.
TEST_F(Study, CountsAreExactOnSmallIntegers) {
  const std::string trace = generate("int", {"int", "--queries", "9", "--keys", "4096"});
  const Json found = study(paper_rules(trace, "24"));
  ASSERT_EQ(found["inputs"][0]["rows"], Json({8}));
  expect_study(found["inputs"][0], trace, 0.0);
}

// A higher threshold leaves fewer keys, and none leaves fewer than those that must stay.
TEST_F(Study, ThresholdsAreOrdered) {
  const Json found = study({kReal, "-k", "256", "--sample", "2", "--widths", "4,16"});
  const Json& input = found["inputs"][0];
  constexpr double kRounding = 1e-9;  // of sums over keys in different orders
  std::size_t cases = 0;
  for (const Json& one : input["cases"]) {
    if (one["survival_fixed"].is_null()) continue;  // seeds older than the rows
    ++cases;
    EXPECT_LE(one["survival_true"], one["survival_fixed"]) << one["name"];
    EXPECT_GE(one["survival_true"], 256.0 / 16384) << one["name"];
    EXPECT_LE(one["scored_rising"], one["scored_fixed"]) << one["name"];
    EXPECT_LE(one["deficit_rising"], one["deficit_fixed"].get<double>() + kRounding) << one["name"];
    EXPECT_GE(one["deficit_rising"], 0.0) << one["name"];
    EXPECT_GE(one["slack"], 0.0) << one["name"];
  }
  EXPECT_GT(cases, 25U);
  for (const Json& course : input["trajectories"]) {
    const std::vector<double> deficit = course["deficit"];
    for (std::size_t step = 1; step < deficit.size(); ++step) {
      EXPECT_LE(deficit[step], deficit[step - 1] + kRounding) << course["name"];
    }
  }
  EXPECT_EQ(input["layer"], 1);
  EXPECT_EQ(input["domain"], "code");
  EXPECT_NE(text_.find("Not available"), std::string::npos);
}

TEST_F(Study, ListsOfWorkloadsBecomeInputsAndLinesOfTheTable) {
  const Json found = study({"--gen", "glm52 --rows 8,16 --layer 0-1 --keys 4096 --queries 3", "-k",
                            "64", "--sample", "1", "--facets", "components"});
  ASSERT_EQ(found["inputs"].size(), 4U);
  EXPECT_EQ(found["inputs"][3]["name"], "glm52 --rows 16 --layer 1 --keys 4096 --queries 3");
  EXPECT_EQ(found["inputs"][3]["retained"], 14);
  EXPECT_NE(text_.find("glm52 --rows 16, 4,096 keys"), std::string::npos);
  const std::string csv = read_text(file("study.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 4 * 6);
}

TEST_F(Study, PublishedFactsStandBesideMeasuredOnes) {
  const Json found = study({"--gen", "glm52 --rows 16 --layer 0 --keys 4096 --queries 3", "-k",
                            "64", "--sample", "1", "--published"});
  const double survival =
      find_case(found["inputs"][0], "components", "full certificate")["survival_fixed"];
  std::istringstream lines(text_);
  std::string line;
  while (std::getline(lines, line) && line.rfind("survival, full certificate", 0) != 0) {
  }
  std::istringstream numbers(
      line.substr(std::min(line.size(), std::strlen("survival, full certificate"))));
  double published = 0.0;
  double measured = 0.0;
  numbers >> published >> measured;
  EXPECT_EQ(published, 2.65);
  EXPECT_NEAR(measured, 100 * survival, 0.0051);
}

TEST_F(Study, TheLibraryIsTimedAndGivesOneAnswer) {
  const Json found = study({"--gen", "glm52 --keys 4096 --queries 8", "-k", "64", "--sample", "1",
                            "--facets", "components", "--repeat", "2", "--threads", "1"});
  const Json& runs = found["inputs"][0]["runs"];
  ASSERT_EQ(runs.size(), 15U);
  for (const Json& run : runs) {
    EXPECT_TRUE(run["identical"]) << run["name"];
    EXPECT_GT(run["seconds"], 0.0);
    EXPECT_EQ(run["repetitions"], 2);
  }
  EXPECT_EQ(runs[0]["fully_scored"], runs[0]["visible"]);
}

TEST_F(Study, RefusesWhatItCannotStudy) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& line) {
    arguments.insert(arguments.begin(), "study");
    arguments.insert(arguments.end(), {"--json", file("none.json")});
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error_lines(), 1);
    EXPECT_NE(outcome.err.find(line), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(file("none.json")));
  };
  refused({}, "found no input");
  refused({file("missing")}, "missing");
  refused({"--gen", "glm53"}, "--gen: found 'glm53', expected one of dial, ");
  refused({"--gen", "glm52 --layer 3-1"}, "a range from a smaller to a larger number");
  refused({"--gen", "glm52 --layer 99 --keys 4096"}, "--layer");
  refused({kReal, "--heads", "33"}, "at most H = 32");
  refused({"--gen", "glm52 --keys 64 --queries 8 --stride 1"}, "visible keys");
  refused({kReal, "--facets", "nothing"}, "--facets: found 'nothing', expected some of comp");
}

}  // namespace
}  // namespace dosa::test
