# SPDX-License-Identifier: Apache-2.0
"""The guard terms of the envelope, and the code without each (read by mutate_guards.py)."""

from __future__ import annotations

from typing import NamedTuple

ENVELOPE = "src/plan/envelope.cpp"
ALLOWANCE = "src/plan/allowance.cpp"
OPERANDS_H = "src/plan/operands.hpp"
OPERANDS = "src/plan/operands.cpp"
QUERY = "src/plan/query_pack_simd.cpp"
TILE = "src/plan/key_tile_simd.cpp"
SCREEN_H = "src/screen/screen.hpp"
SCREEN = "src/screen/screen_simd.cpp"
SCREEN_REF = "src/screen/screen_ref.cpp"
SCORE = "src/refine/score_simd.cpp"
SCORE_REF = "src/refine/score_ref.cpp"
BOUNDS = "src/numeric/bounds.hpp"
OUTWARD = "src/numeric/outward.hpp"
PREPARE = "src/engine/prepare.cpp"
SM90 = "src/numeric/sm90_dot.cpp"


class Mutant(NamedTuple):
    """One term: the inequality that asks for it, where it stands, and the code without it."""

    number: str
    term: str
    file: str
    old: str  # an expression that occurs exactly once in the file
    new: str  # one of the same type


# Constants are read at run time in the copy, so that one build holds all variants.
AT_RUN_TIME = [
    (
        OPERANDS_H,
        "inline constexpr std::int64_t kQueryNorm",
        "inline const std::int64_t kQueryNorm",
    ),
    (OPERANDS_H, "inline constexpr std::int64_t kKeyNorm", "inline const std::int64_t kKeyNorm"),
    (OPERANDS_H, "inline constexpr double kLengthSlack", "inline const double kLengthSlack"),
    (OUTWARD, "inline constexpr double kDoubleSlack", "inline const double kDoubleSlack"),
    (BOUNDS, "constexpr bool rejects(", "inline bool rejects("),
]

# Not listed, because others imply them: that a prunable key's scale is normal (its factor is, and
# 2^(s-18) < 1 keeps NaN, Inf, zero and subnormal what they are or makes them subnormal), and that
# the unit of an aggregate is normal (a subnormal power of two is exact as well).
M = Mutant
MUTANTS = [
    # The envelope: what is added for rounding.
    M(
        "N2",
        "gamma_ref S",
        ENVELOPE,
        "envelope.reconstruction + envelope.reference + envelope.screening",
        "envelope.reconstruction + envelope.screening",
    ),
    M("N2", "gamma_ref: the length of the chains", ENVELOPE, "padded / 8 + 5", "5"),
    M("N2", "gamma_ref: five roundings beside the chain", ENVELOPE, "padded / 8 + 5", "padded / 8"),
    M(
        "N2",
        "S: absolute values of the weights",
        ENVELOPE,
        "std::fabs(static_cast<double>(weights[h])) * rows.norm[h]",
        "static_cast<double>(weights[h]) * rows.norm[h]",
    ),
    M("N5", "rho of retained rows", ENVELOPE, "magnitude / unit * rows.low_norm[h]", "0.0"),
    M("N5", "lambda part of retained rows", ENVELOPE, "magnitude * rows.hat_norm[h]", "0.0"),
    M("N5", "rho of aggregates", ENVELOPE, "outward(rest)", "0.0"),
    M("N5", "lambda part of aggregates", ENVELOPE, "unit * outward(std::sqrt(hat_squared))", "0.0"),
    M("N5", "2^-45 for the sum of an aggregate", ENVELOPE, "0x1p-45 * strength", "0.0"),
    M("N5", "a linear row that is left out", ENVELOPE, "outward(strength)", "0.0"),
    M(
        "N6",
        "coefficient of a retained head, upwards",
        ENVELOPE,
        "round_up(certificate.folded[static_cast<std::size_t>(h)] * unit)",
        "static_cast<float>(certificate.folded[static_cast<std::size_t>(h)] * unit)",
    ),
    M(
        "N8",
        "reconstruction in E",
        ENVELOPE,
        "envelope.reconstruction + envelope.reference + envelope.screening",
        "envelope.reference + envelope.screening",
    ),
    M(
        "N8",
        "gamma_s (B_0 + E_P) in E",
        ENVELOPE,
        "envelope.reconstruction + envelope.reference + envelope.screening",
        "envelope.reconstruction + envelope.reference",
    ),
    M(
        "N8",
        "E_P of the per-key minimum in it",
        ENVELOPE,
        "(certificate.groups > 0 ? certificate.allowance : 0.0)",
        "0.0",
    ),
    M(
        "N8",
        "gamma_s: one rounding per row",
        ENVELOPE,
        "operand.rows + certificate.groups + 6",
        "certificate.groups + 6",
    ),
    M(
        "N8",
        "gamma_s: one rounding per group",
        ENVELOPE,
        "operand.rows + certificate.groups + 6",
        "operand.rows + 6",
    ),
    M(
        "N8",
        "growth of E",
        ENVELOPE,
        "round_up(outward(sum * envelope.growth))",
        "round_up(outward(sum))",
    ),
    M(
        "N8",
        "growth of B",
        ENVELOPE,
        "round_up(outward(envelope.low * envelope.growth * envelope.growth))",
        "round_up(outward(envelope.low))",
    ),
    M(
        "N8",
        "E outward",
        ENVELOPE,
        "round_up(outward(sum * envelope.growth))",
        "round_up(sum * envelope.growth)",
    ),
    M(
        "N8",
        "E upwards to fp32",
        ENVELOPE,
        "round_up(outward(sum * envelope.growth))",
        "static_cast<float>(outward(sum * envelope.growth))",
    ),
    M(
        "N8",
        "B outward",
        ENVELOPE,
        "round_up(outward(envelope.low * envelope.growth * envelope.growth))",
        "round_up(envelope.low * envelope.growth * envelope.growth)",
    ),
    M(
        "N8",
        "B upwards to fp32",
        ENVELOPE,
        "round_up(outward(envelope.low * envelope.growth * envelope.growth))",
        "static_cast<float>(outward(envelope.low * envelope.growth * envelope.growth))",
    ),
    M(
        "N8",
        "E_P of the minimum, upwards",
        ENVELOPE,
        "round_up(certificate.allowance)",
        "static_cast<float>(certificate.allowance)",
    ),
    M(
        "N8",
        "E_g of the minimum, upwards",
        ENVELOPE,
        "round_up(certificate.group_allowance[static_cast<std::size_t>(g)])",
        "static_cast<float>(certificate.group_allowance[static_cast<std::size_t>(g)])",
    ),
    M("N9", "floor", ENVELOPE, "round_up(envelope.floor)", "0.0F"),
    M(
        "N9",
        "floor: one step per head",
        ENVELOPE,
        "(reference_roundings(certificate.heads) * 8 + 2) * 0x1p-131",
        "0x1p-131",
    ),
    M(
        "N10",
        "rows above the limit are not certified",
        PREPARE,
        "envelope.strength <= plan::kRowStrengthLimit",
        "envelope.strength >= 0.0",
    ),
    # Allowances.
    M(
        "N6",
        "folded weight: w_h b_h outward",
        ALLOWANCE,
        "outward(weights[h] * certificate.beta[static_cast<std::size_t>(h)])",
        "weights[h] * certificate.beta[static_cast<std::size_t>(h)]",
    ),
    M("N6", "folded weight: 2^-50 for the sum", ALLOWANCE, "std::fabs(folded) * 0x1p-50", "0.0"),
    M(
        "N7",
        "2^-50 of a residual",
        ALLOWANCE,
        "outward(std::sqrt(squared) + 0x1p-50 * rows.norm[h])",
        "outward(std::sqrt(squared))",
    ),
    M(
        "N7",
        "residual norm outward",
        ALLOWANCE,
        "outward(std::sqrt(squared) + 0x1p-50 * rows.norm[h])",
        "std::sqrt(squared) + 0x1p-50 * rows.norm[h]",
    ),
    M(
        "N7",
        "2^-46 of the joint form",
        ALLOWANCE,
        "outward(std::sqrt(sum + 0x1p-46 * strength * strength))",
        "outward(std::sqrt(sum))",
    ),
    M(
        "N7",
        "joint form outward",
        ALLOWANCE,
        "outward(std::sqrt(sum + 0x1p-46 * strength * strength))",
        "std::sqrt(sum + 0x1p-46 * strength * strength)",
    ),
    # Keys and queries as integers.
    M("N3", "16 below 2^16 for the norm of a query", OPERANDS_H, "65536 - 16", "65536"),
    M("N3", "16 below 2^15 for the norm of a key", OPERANDS_H, "32768 - 16", "32768"),
    M(
        "N3",
        "largest coordinate of the split",
        OPERANDS,
        "largest > kInt16Max << shift",
        "largest < 0",
    ),
    M("N4", "2^-23 of a key's length", OPERANDS_H, "1.0 + 0x1p-23", "1.0"),
    M(
        "N4",
        "|q| outward, reference",
        OPERANDS,
        "outward(std::sqrt(static_cast<double>(squared)))",
        "std::sqrt(static_cast<double>(squared))",
    ),
    M(
        "N4",
        "norms of a query outward, SIMD",
        QUERY,
        "outward(std::sqrt(static_cast<double>(squared)))",
        "std::sqrt(static_cast<double>(squared))",
    ),
    M(
        "N4",
        "keys of negative scale are never pruned, reference",
        OPERANDS,
        "std::isnormal(scale) && scale > 0.0F",
        "std::isnormal(scale)",
    ),
    M(
        "N4",
        "keys of subnormal factor, reference",
        OPERANDS,
        "std::isnormal(factor)",
        "factor > 0.0F",
    ),
    M(
        "N10",
        "keys that could overflow, reference",
        OPERANDS,
        "factor * tile.norm[i] <= kKeyProductLimit",
        "factor * tile.norm[i] >= 0.0F",
    ),
    M(
        "N4",
        "keys of subnormal factor, SIMD",
        TILE,
        "hn::And(hn::Ge(factor, least), hn::Le(factor, largest))",
        "hn::Le(factor, largest)",
    ),
    M(
        "N10",
        "keys that could overflow, SIMD",
        TILE,
        "hn::Le(product, hn::Set(df, kKeyProductLimit))",
        "hn::Ge(product, hn::Zero(df))",
    ),
    # The threshold and what rejects.
    M(
        "N11",
        "2^-22 |tau|",
        SCREEN_H,
        "value - std::fabs(value) * 0x1p-22 - 0x1p-146",
        "value - 0x1p-146",
    ),
    M(
        "N11",
        "2^-146",
        SCREEN_H,
        "value - std::fabs(value) * 0x1p-22 - 0x1p-146",
        "value - std::fabs(value) * 0x1p-22",
    ),
    M("N11", "tau = +Inf", SCREEN_H, "tau < 0.0F ? tau : std::numeric_limits<float>::max()", "tau"),
    M(
        "N11",
        "tau = -Inf",
        SCREEN_H,
        "tau < 0.0F ? tau : std::numeric_limits<float>::max()",
        "std::numeric_limits<float>::max()",
    ),
    M(
        "N12",
        "2^-23 |V|",
        SCREEN_H,
        "value + std::fabs(value) * 0x1p-23 + 0x1p-147",
        "value + 0x1p-147",
    ),
    M(
        "N12",
        "2^-147",
        SCREEN_H,
        "value + std::fabs(value) * 0x1p-23 + 0x1p-147",
        "value + std::fabs(value) * 0x1p-23",
    ),
    M(
        "N12",
        "no finite V",
        SCREEN_H,
        "!(computed >= std::numeric_limits<float>::lowest())",
        "false",
    ),
    M(
        "E6",
        "equality survives",
        BOUNDS,
        "bound.value < threshold.value",
        "bound.value <= threshold.value",
    ),
    M(
        "N11",
        "-Inf survives",
        BOUNDS,
        "bound.value >= std::numeric_limits<float>::lowest()",
        "true",
    ),
    M("N11", "-Inf survives, SIMD", SCREEN, "hn::Not(hn::And(below, finite))", "hn::Not(below)"),
    M("N1", "round_up goes up", OUTWARD, "nearest > 0.0F ? code + 1 : code - 1", "code"),
    M(
        "N1",
        "round_up below the least number",
        OUTWARD,
        "std::numeric_limits<float>::denorm_min()",
        "nearest",
    ),
    M("N1", "round_down goes down", OUTWARD, "-round_up(-x)", "round_up(x)"),
    M("N1", "outward", OUTWARD, "1.0 + 0x1p-30", "1.0"),
    M("N1", "gamma: 1 / (1 - n u)", OUTWARD, "nu / (1.0 - nu)", "nu"),
    # The bound where it is computed.
    M("N8", "E kappa, SIMD screening", SCREEN, "hn::Set(df, operand.norm_term)", "hn::Zero(df)"),
    M("N9", "floor, SIMD screening", SCREEN, "hn::Set(df, operand.floor)", "hn::Zero(df)"),
    M("N8", "B lambda, SIMD screening", SCREEN, "hn::Set(df, operand.low_term)", "hn::Zero(df)"),
    M("N8", "E kappa, reference screening", SCREEN_REF, "operand.norm_term", "0.0F"),
    M("N9", "floor, reference screening", SCREEN_REF, "operand.floor", "0.0F"),
    M("N8", "B lambda, reference screening", SCREEN_REF, "operand.low_term", "0.0F"),
    M("N8", "E kappa, all heads", SCORE, "all_heads.norm_term * tile.norm[key]", "0.0F"),
    M("N9", "floor, all heads", SCORE, "all_heads.floor", "0.0F"),
    M("N8", "B lambda, all heads", SCORE, "all_heads.low_term * tile.low_norm[key]", "0.0F"),
    M("N8", "E kappa, all heads, reference", SCORE_REF, "all_heads.norm_term", "0.0F"),
    M("N9", "floor, all heads, reference", SCORE_REF, "all_heads.floor", "0.0F"),
    M("N8", "B lambda, all heads, reference", SCORE_REF, "all_heads.low_term", "0.0F"),
    # The tensor core's envelope.
    M("S9", "largest products", SM90, "a.top * b.top", "0.0"),
    M("S9", "accumulators of earlier k-steps", SM90, "a.reach * b.reach", "0.0"),
    M("S9", "last result, |q| |k|", SM90, "a.norm * b.norm", "0.0"),
    M("S9", "sum outward", SM90, "outward(units * kLastBit)", "units * kLastBit"),
    M("S9", "least exponent of a product, 2^-6", SM90, "1 << 3", "0"),
    M(
        "S9",
        "R outward",
        SM90,
        "outward(std::sqrt(static_cast<double>(weighted)))",
        "std::sqrt(static_cast<double>(weighted))",
    ),
    M(
        "S9",
        "norm outward",
        SM90,
        "outward(std::sqrt(static_cast<double>(prefix)))",
        "std::sqrt(static_cast<double>(prefix))",
    ),
]
