// SPDX-License-Identifier: Apache-2.0
//
// Designed products: each shows one property of the k-step in its result bits.
#include <cmath>
#include <cstring>

#include "gpu/probe.cuh"

namespace dosa::gpu {
namespace {

/// Code of the power of two 2^e, -9 <= e <= 8.
std::uint8_t power(int e) {
  return e >= -6 ? static_cast<std::uint8_t>((e + 7) << 3)
                 : static_cast<std::uint8_t>(1 << (e + 9));
}

std::uint8_t negated(std::uint8_t code) { return static_cast<std::uint8_t>(code ^ 0x80U); }

float as_float(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::uint32_t as_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// One k-step whose operands are set position by position.
class Case {
 public:
  explicit Case(float start = 0) : start_(start) {}

  /// Product sign * 2^e at a position, -18 <= e <= 16.
  Case& term(int position, int e, bool negative = false) {
    const int x = e >= 0 ? (e + 1) / 2 : e / 2;
    return codes(position, power(x), negative ? negated(power(e - x)) : power(e - x));
  }

  Case& codes(int position, std::uint8_t x, std::uint8_t y) {
    a_[position] = x;
    b_[position] = y;
    return *this;
  }

  /// Runs the case in every row and column of a tile; sets uniform to whether all agree.
  [[nodiscard]] float run(Route route, bool* uniform = nullptr) const {
    TileBatch batch;
    for (int row = 0; row < kTileRows; ++row) {
      batch.a.insert(batch.a.end(), a_, a_ + kStepBytes);
      batch.b.insert(batch.b.end(), b_, b_ + kStepBytes);
    }
    batch.start.assign(kTileRows * 64, as_bits(start_));
    multiply_batch(batch, route);
    if (uniform != nullptr) {
      *uniform = true;
      for (const std::uint32_t bits : batch.result) *uniform = *uniform && bits == batch.result[0];
    }
    return as_float(batch.result[0]);
  }

 private:
  std::uint8_t a_[kStepBytes] = {};
  std::uint8_t b_[kStepBytes] = {};
  float start_;
};

void show(std::FILE* out, const char* label, const Case& probe) {
  bool uniform = false;
  const float shared = probe.run(Route::kShared, &uniform);
  const float registers = probe.run(Route::kRegisters);
  const float mma = probe.run(Route::kMmaSync);
  std::fprintf(out, "  %-58s %08x %-16.9g reg %08x mma %08x%s\n", label, as_bits(shared), shared,
               as_bits(registers), as_bits(mma), uniform ? "" : " NOT UNIFORM");
}

/// Smallest exponent of a lone product that survives beside +2^0 and -2^0 at two positions.
int kept_exponent(int first, int second, int small, Route route) {
  for (int e = -1; e >= -18; --e) {
    Case probe;
    probe.term(first, 0).term(second, 0, true).term(small, e);
    if (probe.run(route) == 0) return e + 1;
  }
  return -18;
}

void print_alignment(std::FILE* out) {
  std::fprintf(out, "smallest surviving exponent of a product beside +1 and -1, by position\n");
  const int pairs[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {0, 31}, {15, 16}, {7, 24}};
  for (const auto& pair : pairs) {
    std::fprintf(out, "  pair (%2d,%2d):", pair[0], pair[1]);
    for (int small = 0; small < kStepBytes; ++small) {
      if (small == pair[0] || small == pair[1]) {
        std::fprintf(out, "   .");
      } else {
        std::fprintf(out, " %3d", kept_exponent(pair[0], pair[1], small, Route::kShared));
      }
    }
    std::fprintf(out, "\n");
  }
  std::fprintf(out, "  mma.sync pair (0,1) at 2, 9, 15, 16, 31: %d %d %d %d %d\n",
               kept_exponent(0, 1, 2, Route::kMmaSync), kept_exponent(0, 1, 9, Route::kMmaSync),
               kept_exponent(0, 1, 15, Route::kMmaSync), kept_exponent(0, 1, 16, Route::kMmaSync),
               kept_exponent(0, 1, 31, Route::kMmaSync));
}

Case many_small(int e, bool negative) {
  Case probe;
  probe.term(0, 0).term(1, 0, true);
  for (int i = 2; i < kStepBytes; ++i) probe.term(i, e, negative);
  return probe;
}

void print_rounding(std::FILE* out) {
  std::fprintf(out, "rounding of aligned terms and of the result\n");
  show(out, "1 - 1 + 30 x 2^-13", many_small(-13, false));
  show(out, "1 - 1 + 30 x 2^-14", many_small(-14, false));
  show(out, "1 - 1 - 30 x 2^-14", many_small(-14, true));
  show(out, "16 - 16 + 1.75 x 2^-9", Case().term(0, 4).term(1, 4, true).codes(2, 0x1e, 0x10));
  show(out, "16 - 16 - 1.75 x 2^-9", Case().term(0, 4).term(1, 4, true).codes(2, 0x9e, 0x10));
  show(out, "1 + 2^-13", Case().term(0, 0).term(1, -13));
  show(out, "1 + 1 + 2^-13", Case().term(0, 0).term(1, 0).term(2, -13));
  show(out, "-1 - 1 - 2^-13", Case().term(0, 0, true).term(1, 0, true).term(2, -13, true));
  show(out, "1 + 1 + 2^-12 + 2^-13", Case().term(0, 0).term(1, 0).term(2, -12).term(3, -13));
  show(out, "3.515625 (1.875 x 1.875) + 2^-13", Case().codes(0, 0x3f, 0x3f).term(1, -13));
  show(out, "3.515625 - 3.515625 + 2^-13",
       Case().codes(0, 0x3f, 0x3f).codes(1, 0x3f, 0xbf).term(2, -13));
  show(out, "3.515625 - 3.515625 + 2^-14",
       Case().codes(0, 0x3f, 0x3f).codes(1, 0x3f, 0xbf).term(2, -14));
}

void print_accumulator(std::FILE* out) {
  std::fprintf(out, "the accumulator\n");
  show(out, "start 1 + 2^-23, no products", Case(1.0F + 0x1p-23F));
  show(out, "start 1 + 2^-13 + 2^-14, no products", Case(1.0F + 0x1p-13F + 0x1p-14F));
  show(out, "start 1 + 2^-13, -1", Case(1.0F + 0x1p-13F).term(0, 0, true));
  show(out, "start 1 + 2^-14, -1", Case(1.0F + 0x1p-14F).term(0, 0, true));
  show(out, "start 1 + 2^-20, -1", Case(1.0F + 0x1p-20F).term(0, 0, true));
  show(out, "start 2^-13, 1 - 1", Case(0x1p-13F).term(0, 0).term(1, 0, true));
  show(out, "start 2^-14, 1 - 1", Case(0x1p-14F).term(0, 0).term(1, 0, true));
  show(out, "start -2^-14, 1 - 1", Case(-0x1p-14F).term(0, 0).term(1, 0, true));
  show(out, "start 1, -1 + 2^-13", Case(1.0F).term(0, 0, true).term(1, -13));
  show(out, "start 1, -1 + 2^-14", Case(1.0F).term(0, 0, true).term(1, -14));
  show(out, "start 4, -4 + 2^-11", Case(4.0F).term(0, 2, true).term(1, -11));
  show(out, "start 4, -4 + 2^-12", Case(4.0F).term(0, 2, true).term(1, -12));
  show(out, "start 2^-30, no products", Case(0x1p-30F));
  show(out, "start 2^-26, no products", Case(0x1p-26F));
  show(out, "start 2^-140 (subnormal), no products", Case(0x1p-140F));
  show(out, "start -0, no products", Case(-0.0F));
  show(out, "start 3e38, 448 x 448", Case(3e38F).codes(0, 0x7e, 0x7e));
  show(out, "start +Inf, 1", Case(INFINITY).term(0, 0));
  show(out, "start NaN, 1", Case(NAN).term(0, 0));
}

void print_special(std::FILE* out) {
  std::fprintf(out, "zeros, subnormals, NaN\n");
  show(out, "2^-18", Case().term(0, -18));
  show(out, "2^-18, 0 x 448", Case().term(0, -18).codes(1, 0x00, 0x7e));
  show(out, "2^-18, 448 x 0", Case().term(0, -18).codes(1, 0x7e, 0x00));
  show(out, "2^-12, 0 x 448", Case().term(0, -12).codes(1, 0x00, 0x7e));
  show(out, "2^-11, 0 x 448", Case().term(0, -11).codes(1, 0x00, 0x7e));
  show(out, "2^-14, 2^-9 x 256, -(2^-9 x 256)",
       Case().term(0, -14).codes(1, 0x01, 0x78).codes(2, 0x01, 0xf8));
  show(out, "2^-11, 2^-9 x 256, -(2^-9 x 256)",
       Case().term(0, -11).codes(1, 0x01, 0x78).codes(2, 0x01, 0xf8));
  show(out, "2^-12, 2^-9 x 256, -(2^-9 x 256)",
       Case().term(0, -12).codes(1, 0x01, 0x78).codes(2, 0x01, 0xf8));
  show(out, "(-0) x 1 everywhere else +0", Case().codes(0, 0x80, 0x38));
  show(out, "start -0, (-0) x 1", Case(-0.0F).codes(0, 0x80, 0x38));
  show(out, "NaN x 0", Case().codes(0, 0x7f, 0x00));
  show(out, "1 x NaN (negative code)", Case().codes(0, 0x38, 0xff));
  Case largest;
  for (int i = 0; i < kStepBytes; ++i) largest.codes(i, 0x7e, 0x7e);
  show(out, "32 x 448 x 448", largest);
}

}  // namespace

void print_designed_probes(std::FILE* out) {
  std::fprintf(out, "designed probes: wgmma m64n64k32 bits, value, a in registers, mma.sync\n");
  print_alignment(out);
  print_rounding(out);
  print_accumulator(out);
  print_special(out);
}

}  // namespace dosa::gpu
