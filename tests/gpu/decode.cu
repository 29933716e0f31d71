// SPDX-License-Identifier: Apache-2.0
// Decode steps on the device against every key scored and ranked on the host.
// Exit code 77: skipped, there is no sm_90 device.
#include <functional>

#include "gpu/paged_checks.hpp"

namespace dosa::testing {
namespace {

/// Two ways lead to an answer: scores that stay in shared memory, which small steps take unless the
/// mode is full, and records above a threshold. Both from the empty state, from the state that was
/// left, from one made of random words, without states, and again by each other's states: the same
/// bytes each time.
void check_step(const std::string& name, const PagedCase& paged, unsigned seed) {
  const PagedAnswer wanted = expected_answer(paged);
  PagedDevice device(paged);
  compare(name + ", empty state", paged.spec, device.run(), wanted);
  compare(name + ", own state", paged.spec, device.run(), wanted);
  std::mt19937 random(seed);
  std::vector<uint32_t> garbage(device.states.size());
  for (uint32_t& word : garbage) word = random() % 3 == 0 ? random() : random() % paged.spec.tokens;
  for (int b = 0; b < paged.spec.batch; b += 2) {
    garbage[b * PagedDevice::state_words(paged.spec.topk)] = 0xffffffff;
  }
  DOSA_CUDA(
      cudaMemcpy(device.states.get(), garbage.data(), garbage.size() * 4, cudaMemcpyHostToDevice));
  compare(name + ", random state", paged.spec, device.run(), wanted);
  device.options.mode = DOSA_MODE_BASE;
  compare(name + ", base", paged.spec, device.run(), wanted);
  device.options.mode = DOSA_MODE_FULL;
  compare(name + ", records", paged.spec, device.run(), wanted);
  compare(name + ", records, own state", paged.spec, device.run(), wanted);
  DOSA_CUDA(
      cudaMemcpy(device.states.get(), garbage.data(), garbage.size() * 4, cudaMemcpyHostToDevice));
  compare(name + ", records, random state", paged.spec, device.run(), wanted);
  device.problem.witnesses = nullptr;
  compare(name + ", records, no states", paged.spec, device.run(), wanted);
  device.options.mode = DOSA_MODE_AUTO;
  compare(name + ", no states", paged.spec, device.run(), wanted);
}

void check_real(const std::string& name, const PagedSpec& spec, unsigned seed) {
  check_step(name, PagedCase(spec, make_keys(spec, seed), seed), seed);
}

void check_pages() {
  for (const int page_size : {1, 16, 32, 64, 128}) {
    for (const int gap : {0, 4, 16, 124}) {
      PagedSpec spec;
      spec.page_size = page_size;
      spec.page_gap = gap;
      check_real("pages", spec, 10 + page_size + gap);
    }
  }
}

void check_shapes() {
  for (int next_n = 1; next_n <= 8; ++next_n) {
    for (const int heads : {1, 5, 8, 32, 48, 64, 100, 128}) {
      PagedSpec spec;
      spec.batch = 2;
      spec.next_n = next_n;
      spec.heads = heads;
      spec.tokens = 1500;
      spec.lengths = next_n % 2 == 0 ? DOSA_LENGTHS_PER_QUERY : DOSA_LENGTHS_PER_REQUEST;
      check_real("shapes", spec, 100 * next_n + heads);
    }
  }
}

void check_topk() {
  for (const int topk : {1, 2, 63, 512, 2048, 3000, 4096}) {
    for (const int tokens : {1, 64, 2049, 9000, 20000}) {
      PagedSpec spec;
      spec.batch = 2;
      spec.topk = topk;
      spec.tokens = tokens;
      check_real("topk", spec, 7 * topk + tokens);
      spec.scores = false;
      check_real("topk without scores", spec, 7 * topk + tokens + 1);
    }
  }
}

void check_forms() {
  for (const int form :
       {DOSA_INDEX_ABSOLUTE, DOSA_INDEX_RELATIVE, DOSA_INDEX_OFFSET, DOSA_INDEX_SLOT}) {
    for (const int order : {DOSA_ORDER_ID, DOSA_ORDER_SCORE}) {
      for (const bool own : {true, false}) {
        PagedSpec spec;
        spec.index_form = form;
        spec.order = order;
        spec.own_slots = own;
        spec.scores = order == DOSA_ORDER_SCORE;
        spec.page_size = 32;
        check_real("forms", spec, 40 + form);
        spec.forced_first = 5;
        spec.forced_last = own ? 17 : 100;
        check_real("forced", spec, 50 + form);
      }
    }
  }
}

/// Scores made to order: plateaus, rising, falling, and scales that are no normal numbers.
void check_values() {
  PagedSpec spec;
  spec.batch = 2;
  spec.topk = 256;
  spec.tokens = 12000;
  const size_t keys = static_cast<size_t>(spec.batch) * spec.tokens;
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {0.0f,          -0.0f, 1e-40f, -1e-40f, infinity, -infinity, -1.0f,
                       std::nanf(""), 1.0f,  2.0f,   1.0f,    1.0f,     1.0f};
  const std::pair<const char*, std::function<float(size_t)>> kinds[] = {
      {"equal", [](size_t) { return 1.0f; }},
      {"rising", [](size_t i) { return 1.0f + static_cast<float>(i % 12000) * 0x1p-14f; }},
      {"falling", [](size_t i) { return 1.0f - static_cast<float>(i % 12000) * 0x1p-15f; }},
      {"two plateaus", [](size_t i) { return i * 2654435761u % 100 < 3 ? 2.0f : 1.0f; }},
      {"all NaN", [](size_t) { return std::nanf(""); }},
      {"odd scales", [&](size_t i) { return odd[i * 2654435761u % std::size(odd)]; }}};
  for (const auto& [name, value] : kinds) {
    std::vector<float> values(keys);
    for (size_t i = 0; i < keys; ++i) values[i] = value(i);
    for (const float sign : {1.0f, -1.0f}) {
      for (const int topk : {1, 256, 4096}) {
        spec.topk = topk;
        check_step(name, PagedCase(spec, make_dial(spec.batch, spec.heads, values, sign), 5), 6);
      }
    }
  }
  HostInputs integers = make_int(spec.batch, static_cast<int>(keys), spec.heads, 9);
  check_step("integers", PagedCase(spec, integers, 9), 9);
  integers.weights[3] = std::nanf("");
  integers.weights[spec.heads + 1] = infinity;
  check_step("odd weights", PagedCase(spec, integers, 9), 10);
}

/// A sequence that grows, whose query wanders: thresholds come from the step before.
void check_sequence() {
  PagedSpec spec;
  spec.topk = 512;
  spec.tokens = 50000;
  spec.batch = 2;
  spec.next_n = 2;
  PagedCase paged(spec, make_keys(spec, 70), 70);
  PagedDevice device(paged);
  std::mt19937 random(71);
  for (int step = 0; step < 12; ++step) {
    for (int change = 0; change < 40; ++change) {
      paged.host.q[random() % paged.host.q.size()] ^= 1;
    }
    for (int32_t& length : paged.lengths) length = spec.tokens - 100 + 8 * step;
    if (step == 6) paged.lengths[1] = 30000;  // drafts were rejected
    const auto copy = [](const auto& target, const auto& source) {
      DOSA_CUDA(cudaMemcpy(target.get(), source.data(), source.size() * sizeof(source[0]),
                           cudaMemcpyHostToDevice));
    };
    copy(device.q, paged.host.q);
    copy(device.lengths, paged.lengths);
    compare("sequence", spec, device.run(), expected_answer(paged));
  }
}

/// One request that is shared by all CTAs, and many that are not; more than one round takes.
void check_sizes() {
  PagedSpec one;
  one.batch = 1;
  one.topk = 2048;
  one.tokens = 300000;
  one.scores = false;
  check_real("one long request", one, 80);
  PagedSpec many;
  many.batch = 700;
  many.topk = 16;
  many.tokens = 333;
  check_real("many requests", many, 81);
  for (const int next_n : {1, 3}) {
    PagedSpec rounds;
    rounds.batch = next_n == 1 ? 200 : 65;
    rounds.next_n = next_n;
    rounds.topk = 100;
    rounds.tokens = 3000;
    check_real("rounds", rounds, 83 + next_n);
  }
  PagedSpec none;
  none.batch = 1;
  const PagedCase paged(none, make_keys(none, 82), 82);
  PagedDevice device(paged);
  device.problem.batch = 0;
  device.enqueue(nullptr);
  DOSA_CUDA(cudaDeviceSynchronize());
  expect(true, "no request", "");
}

/// Rows do not depend on where in the batch their request stands.
void check_batch_order() {
  PagedSpec spec;
  spec.batch = 9;
  spec.topk = 200;
  spec.tokens = 5000;
  PagedCase paged(spec, make_keys(spec, 97), 97);
  const PagedAnswer before = PagedDevice(paged).run();
  PagedCase reversed = paged;
  for (int b = 0; b < spec.batch; ++b) {
    const int from = spec.batch - 1 - b;
    const size_t width = static_cast<size_t>(spec.heads) * kDim;
    std::copy_n(paged.host.q.begin() + from * width, width, reversed.host.q.begin() + b * width);
    std::copy_n(paged.host.weights.begin() + from * spec.heads, spec.heads,
                reversed.host.weights.begin() + b * spec.heads);
    std::copy_n(paged.table.begin() + from * paged.blocks(), paged.blocks(),
                reversed.table.begin() + b * paged.blocks());
    reversed.lengths[b] = paged.lengths[from];
  }
  const PagedAnswer after = PagedDevice(reversed).run();
  bool same = true;
  for (int b = 0; b < spec.batch; ++b) {
    const auto* const found = after.ids.data() + b * spec.topk;
    same = same && std::equal(found, found + spec.topk,
                              before.ids.data() + (spec.batch - 1 - b) * spec.topk);
  }
  expect(same, "batch order", "a row changed with its place");
}

}  // namespace
}  // namespace dosa::testing

int main(int argc, char** argv) {
  using namespace dosa::testing;
  return run_parts({{"pages", check_pages},
                    {"shapes", check_shapes},
                    {"topk", check_topk},
                    {"forms", check_forms},
                    {"values", check_values},
                    {"sequence", check_sequence},
                    {"sizes", check_sizes},
                    {"order", check_batch_order}},
                   argc, argv);
}
