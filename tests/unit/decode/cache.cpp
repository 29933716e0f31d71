// SPDX-License-Identifier: Apache-2.0
//
// Insertion against the definition of the formats in exact arithmetic, the gather against the keys
// that were put in, and a whole life: insert, decode, gather, prefill.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>

#include "paged.hpp"

namespace dosa::oracle {
namespace {

std::uint16_t bf16(double x) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

double value_of(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The scale by its definition; fp32 division is what the hardware does.
float expected_scale(const std::uint16_t* key, int dims, dosa_scale_format format) {
  double amax = 0;
  for (int d = 0; d < dims; ++d) {
    const double magnitude = std::abs(value_of(key[d]));
    if (magnitude > amax) amax = magnitude;
  }
  const float scale = static_cast<float>(std::max(amax, static_cast<double>(1e-4F)) / 448.0);
  if (format == DOSA_SCALE_FP32) return scale;
  return static_cast<float>(std::exp2(std::ceil(std::log2(static_cast<double>(scale)))));
}

/// The nearest of all codes, ties to the even one.
std::uint8_t nearest_code(float x) {
  if (std::isnan(x)) return 0x7f;
  std::uint8_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7f; ++code) {
    const double value = std::ldexp(decode_e4m3(static_cast<std::uint8_t>(code)).units, -9);
    const double distance = std::abs(std::abs(static_cast<double>(x)) - value);
    if (distance > least || (distance == least && code % 2 == 1)) continue;
    least = distance;
    best = static_cast<std::uint8_t>(code);
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

struct Insertion {
  explicit Insertion(int page_size, int dims = 16, std::int64_t tokens = 0, int pages = 4)
      : bytes(static_cast<std::size_t>(pages) * (page_size * (dims + 4) + 12), 0xa5),
        keys(static_cast<std::size_t>(tokens * dims)),
        slots(static_cast<std::size_t>(tokens)) {
    cache = {sizeof cache, bytes.data(), page_size * (dims + 4) + 12, pages, page_size, dims};
    problem.struct_size = sizeof problem;
    problem.cache = &cache;
    problem.num_tokens = tokens;
    problem.k_stride = dims;
    problem.k = keys.data();
    problem.slot_mapping = slots.data();
  }
  [[nodiscard]] const std::uint8_t* codes(std::int64_t slot) const {
    return bytes.data() + slot / cache.page_size * cache.page_stride +
           slot % cache.page_size * cache.head_dim;
  }
  [[nodiscard]] float scale(std::int64_t slot) const {
    float value = 0;
    std::memcpy(&value,
                bytes.data() + slot / cache.page_size * cache.page_stride +
                    cache.page_size * cache.head_dim + slot % cache.page_size * 4,
                4);
    return value;
  }
  void expect_token(std::size_t t) const {
    const std::uint16_t* key = keys.data() + t * static_cast<std::size_t>(cache.head_dim);
    const auto format = static_cast<dosa_scale_format>(problem.scale_format);
    const float expected = expected_scale(key, cache.head_dim, format);
    ASSERT_EQ(scale(slots[t]), expected);
    for (int d = 0; d < cache.head_dim; ++d) {
      const auto x = static_cast<float>(value_of(key[d]) / static_cast<double>(expected));
      const std::uint8_t code = codes(slots[t])[d];
      if (std::isnan(x)) {
        EXPECT_EQ(code & 0x7f, 0x7f);
      } else {
        ASSERT_EQ(static_cast<int>(code), static_cast<int>(nearest_code(x))) << value_of(key[d]);
      }
    }
  }

  std::vector<std::uint8_t> bytes;
  std::vector<std::uint16_t> keys;
  std::vector<std::int64_t> slots;
  dosa_page_cache cache{};
  dosa_paged_insert_problem problem{};
};

// All 65,536 bf16 values in keys of many sizes, both formats, any rounding direction.
TEST(Insert, EveryValue) {
  for (const auto format : {DOSA_SCALE_FP32, DOSA_SCALE_UE8M0}) {
    for (const int direction : {FE_TONEAREST, FE_UPWARD}) {
      Insertion in(128, 16, 65536 / 15 + 1, 65536 / 15 / 128 + 1);
      in.problem.scale_format = format;
      in.problem.threads = 2;
      Random random(4);
      std::uint32_t next = 0;
      for (std::size_t t = 0; t < in.slots.size(); ++t) {
        in.slots[t] = static_cast<std::int64_t>(t);
        for (std::size_t d = 0; d < 15; ++d) {
          in.keys[16 * t + d] = static_cast<std::uint16_t>(next++ & 0xffff);
        }
        // One coordinate sets the scale of its neighbours, which have nearly the same exponent.
        const double size = std::abs(value_of(in.keys[16 * t])) * (1 + 7 * random.uniform());
        in.keys[16 * t + 15] = bf16(std::isfinite(size) ? std::min(size, 3e38) : 1.0);
      }
      random.shuffle(in.slots);
      std::fesetround(direction);
      const dosa_status status = dosa_paged_insert(&in.problem);
      std::fesetround(FE_TONEAREST);
      ASSERT_EQ(status, DOSA_OK) << dosa_last_error();
      for (std::size_t t = 0; t < in.slots.size(); ++t) in.expect_token(t);
    }
  }
}

TEST(Insert, ZerosInfinityAndNan) {
  Insertion in(16, 16, 4);
  in.slots = {3, 17, 40, 63};
  std::fill(in.keys.begin(), in.keys.end(), std::uint16_t{0x8000});  // -0
  in.keys[16 + 2] = 0x7f80;                                          // +Inf
  in.keys[32 + 5] = 0x7fc0;                                          // NaN
  in.keys[32 + 6] = bf16(224);
  ASSERT_EQ(dosa_paged_insert(&in.problem), DOSA_OK);
  EXPECT_EQ(in.scale(3), 1e-4F / 448.0F);
  EXPECT_EQ(in.codes(3)[0], 0x80);
  EXPECT_EQ(in.scale(17), std::numeric_limits<float>::infinity());
  EXPECT_EQ(in.codes(17)[2] & 0x7f, 0x7f);
  EXPECT_EQ(in.scale(40), 0.5F);
  EXPECT_EQ(in.codes(40)[5] & 0x7f, 0x7f);
  EXPECT_EQ(in.codes(40)[6], 0x7e);  // 448
}

TEST(Insert, SkippedTokensAndTheRestOfThePages) {
  for (const int page_size : {1, 16, 32, 64, 128}) {
    Insertion in(page_size, 32, 9, 10);
    Random random(8);
    for (auto& key : in.keys) key = bf16(random.normal());
    const std::int64_t slots = 10 * page_size;
    in.slots = {0, -1, slots - 1, slots / 2, -1, 2, -5, slots / 3, slots / 4 + 2};
    const std::vector<std::uint8_t> before = in.bytes;
    ASSERT_EQ(dosa_paged_insert(&in.problem), DOSA_OK) << dosa_last_error();
    std::vector<std::uint8_t> written(in.bytes.size(), 0);
    for (std::size_t t = 0; t < 9; ++t) {
      const std::int64_t slot = in.slots[t];
      if (slot < 0) continue;
      in.expect_token(t);
      const auto at = static_cast<std::size_t>(in.codes(slot) - in.bytes.data());
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(at), 32, 1);
      const std::int64_t page = slot / page_size * in.cache.page_stride;
      std::fill_n(written.begin() + page + page_size * 32 + slot % page_size * 4, 4, 1);
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (written[i] != 0) continue;
      ASSERT_EQ(in.bytes[i], before[i]) << "page size " << page_size;
    }
  }
}

Problem keys_of(int keys, std::uint64_t seed) {
  Recipe recipe;
  recipe.kind = Kind::kCodes;
  recipe.scales = Scales::kAnything;
  recipe.num_queries = 1;
  recipe.sixteenths = 2;
  recipe.num_keys = keys;
  recipe.nan_codes = 3;
  recipe.seed = seed;
  return make_problem(recipe);
}

TEST(Gather, AllTokensInOrder) {
  for (const int page_size : {1, 16, 32, 64, 128}) {
    for (const int padding : {0, 5}) {
      std::vector<Problem> requests;
      std::vector<std::int32_t> cumulative = {0};
      for (const int keys : {130, 0, 1, 9000, 64, 128, 300}) {
        requests.push_back(keys_of(keys, requests.size()));
        cumulative.push_back(cumulative.back() + keys);
      }
      Pages pages(requests, {page_size, 8});
      const auto total = static_cast<std::size_t>(cumulative.back());
      const auto stride = static_cast<std::size_t>(32 + padding);
      std::vector<std::uint8_t> k((total + 1) * stride, 0xee);
      std::vector<float> scale(total + 1, -5);
      dosa_paged_gather_problem gather{};
      gather.struct_size = sizeof gather;
      gather.cache = &pages.cache();
      gather.batch = static_cast<std::int64_t>(requests.size());
      gather.block_table = pages.table().data();
      gather.block_table_stride = gather.block_table_blocks = pages.blocks();
      gather.cu_seq_lens = cumulative.data();
      gather.num_keys = static_cast<std::int64_t>(total);
      gather.k = k.data();
      gather.k_stride = static_cast<std::int64_t>(stride);
      gather.k_scale = scale.data();
      gather.threads = 3;
      ASSERT_EQ(dosa_paged_gather(&gather), DOSA_OK) << dosa_last_error();
      std::size_t row = 0;
      for (const Problem& request : requests) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(request.num_keys); ++i, ++row) {
          ASSERT_EQ(std::memcmp(&k[row * stride], &request.k[32 * i], 32), 0) << row;
          ASSERT_EQ(std::memcmp(&scale[row], &request.k_scale[i], 4), 0) << row;
          for (std::size_t p = 32; p < stride; ++p) ASSERT_EQ(k[row * stride + p], 0xee);
        }
      }
      EXPECT_EQ(scale.back(), -5);
      EXPECT_EQ(k[total * stride], 0xee);
    }
  }
}

// Keys arrive one by one, each step decodes, and at the end a prefill over the gathered keys agrees
// with the last step.
TEST(Life, InsertDecodeGatherPrefill) {
  constexpr int kDims = 16;
  constexpr int kTokens = 700;
  Insertion in(64, kDims, 1, 20);
  std::vector<std::int32_t> table(20);
  for (int n = 0; n < 20; ++n) table[static_cast<std::size_t>(n)] = 19 - n;
  Random random(6);
  Problem query = keys_of(0, 1);
  query.head_dim = kDims;
  query.topk = 40;
  query.q.resize(kDims);
  for (auto& code : query.q) code = encode_e4m3(random.normal());
  dosa_options options = make_options();
  std::vector<std::uint32_t> state(1 + 60, 0);
  Outcome last;
  for (int token = 0; token < kTokens; ++token) {
    for (auto& x : in.keys) x = bf16(random.normal());
    in.slots[0] = table[static_cast<std::size_t>(token / 64)] * 64 + token % 64;
    in.problem.scale_format = token % 2;
    ASSERT_EQ(dosa_paged_insert(&in.problem), DOSA_OK);
    if (token % 50 != 49) continue;
    query.num_keys = token + 1;
    query.k.assign(static_cast<std::size_t>(token + 1) * kDims, 0);
    query.k_scale.assign(static_cast<std::size_t>(token + 1), 0);
    std::int32_t cumulative[] = {0, token + 1};
    dosa_paged_gather_problem gather{};
    gather.struct_size = sizeof gather;
    gather.cache = &in.cache;
    gather.batch = 1;
    gather.block_table = table.data();
    gather.block_table_stride = gather.block_table_blocks = 20;
    gather.cu_seq_lens = cumulative;
    gather.num_keys = token + 1;
    gather.k = query.k.data();
    gather.k_stride = kDims;
    gather.k_scale = query.k_scale.data();
    ASSERT_EQ(dosa_paged_gather(&gather), DOSA_OK) << dosa_last_error();
    const Outcome prefill = oracle::run(query, {}, options);
    Step step({query}, {});
    step.pages.table().assign(table.begin(), table.end());
    step.problem.block_table = step.pages.table().data();
    step.problem.block_table_stride = step.problem.block_table_blocks = 20;
    step.problem.cache = &in.cache;
    step.problem.witnesses = state.data();
    step.problem.witness_count = 1;
    step.problem.witness_stride = static_cast<std::int64_t>(4 * state.size());
    last = step.run(options);
    ASSERT_TRUE(bytes_of(last) == bytes_of(prefill)) << token;
    ASSERT_EQ(difference(query, top_k(query, {}), last), "");
  }
  EXPECT_TRUE(std::isfinite(last.rows.at(0).first_threshold));
}

}  // namespace
}  // namespace dosa::oracle
